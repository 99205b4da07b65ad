// How the nodes of a load tell each other where they are. The words go through the rendezvous, for
// set-up and ends only.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "env/env.h"
#include "fabric/fabric.h"
#include "measure/params.h"

namespace pyrdma::tailwind {

class Meeting {
 public:
  Meeting(Env& env, const measure::Params& params) : env_(env), name_(params.key("meeting")) {}

  void say(const std::string& word) {
    env_.device().rendezvous().publish_value(key(word, env_.node()), std::uint8_t{1});
  }
  /// Waits until nodes `first` to `last` - 1 have said the word. Returns false, up to a second
  /// later, when gives_up() does not want to wait any more: another thread of the node has failed,
  /// and its error must not wait for the word of a node that waits for this one. Throws
  /// Error(kTimeout), naming the word and the node, after `patience`.
  bool await(const std::string& word, NodeId first, NodeId last, Time patience,
             FunctionRef<bool()> gives_up) {
    const Time deadline = env_.now() + patience;
    for (NodeId node = first; node < last; ++node)
      while (!comes(key(word, node), deadline)) {
        if (gives_up()) return false;
      }
    return true;
  }
  /// Blocks the threads of this number of nodes `first` to `last` - 1 until all of them have come,
  /// and then until a time that `first` chooses, so all go on at once. Returns false as await()
  /// does.
  bool begin_together(std::uint32_t thread, NodeId first, NodeId last, Time patience,
                      FunctionRef<bool()> gives_up) {
    const std::string ready = "ready/" + std::to_string(thread);
    const std::string begin = "begin/" + std::to_string(thread);
    const Time settle = (last - first) * kLookUp;  // nodes may look up one after the other
    Time leave = 0;
    if (env_.node() == first) {
      if (!await(ready, first + 1, last, patience, gives_up)) return false;
      leave = env_.now() + settle;
      env_.device().rendezvous().publish_value(key(begin, first), leave);
    } else {
      say(ready);
      if (!await(begin, first, first + 1, patience, gives_up)) return false;
      if (value_.size() == sizeof leave) std::memcpy(&leave, value_.data(), sizeof leave);
    }
    // The clocks of two hosts may differ.
    env_.sleep_until(std::clamp<Time>(leave, env_.now(), env_.now() + settle));
    return true;
  }

 private:
  static constexpr Time kLookUp = kMillisecond;  // more than a look-up that finds its key
  static constexpr Time kLook = kSecond;  // longer than await() needs to find that a node has ended

  /// Returns false when the key is not there after a while.
  bool comes(const std::string& key, Time deadline) {
    const Time until = std::min(deadline, env_.now() + kLook);
    try {
      value_ = env_.device().rendezvous().await(key, until);
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout || until == deadline) throw;
      return false;
    }
  }
  std::string key(const std::string& word, NodeId node) const {
    return name_ + "/" + word + "/" + std::to_string(node);
  }
  Env& env_;
  const std::string name_;
  std::vector<std::byte> value_;  // that await() has found last
};

}  // namespace pyrdma::tailwind
