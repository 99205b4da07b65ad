// How the nodes of a load tell each other where they are. The words go through the rendezvous, for
// set-up and ends only.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "env/env.h"
#include "fabric/fabric.h"
#include "measure/params.h"

namespace pyrdma::tailwind {

class Meeting {
 public:
  Meeting(Env& env, const measure::Params& params)
      : env_(env),
        name_(params.key("meeting")),
        patience_(params.integer("wait_timeout_ms") * kMillisecond) {}

  void say(const std::string& word) {
    env_.device().rendezvous().publish_value(key(word, env_.node()), std::uint8_t{1});
  }
  /// Waits until nodes `first` to `last` - 1 have said the word. Throws Error(kTimeout), naming it.
  void await(const std::string& word, NodeId first, NodeId last, Time patience) {
    for (NodeId node = first; node < last; ++node)
      env_.device().rendezvous().await(key(word, node), env_.now() + patience);
  }
  void await(const std::string& word, NodeId first, NodeId last) {
    await(word, first, last, patience_);
  }

 private:
  std::string key(const std::string& word, NodeId node) const {
    return name_ + "/" + word + "/" + std::to_string(node);
  }
  Env& env_;
  const std::string name_;
  const Time patience_;
};

}  // namespace pyrdma::tailwind
