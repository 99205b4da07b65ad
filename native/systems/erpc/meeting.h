// A meeting of all nodes of a run while their event loops go on: at the begin of a run every server
// must serve the connections of the others, and at its end the requests of the others.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "runtime/exchange.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

class Meeting {
 public:
  /// `name` names the meetings of a run; each node has one object of the name.
  Meeting(Env& env, std::string name) : env_(env), name_(std::move(name)) {}

  /// Runs the event loop until every node has called this as often, and then until a time that node
  /// 0 chooses, about a millisecond later. No node leaves while another one still looks up and does
  /// not answer. Throws Error(kTimeout), naming a node that did not come. Cost: node 0 looks for
  /// each node, the others for node 0.
  void wait(Endpoint& endpoint, Time timeout) {
    const std::string round = name_ + '/' + std::to_string(round_++) + '/';
    const Time deadline = env_.now() + timeout;
    if (env_.node() == 0) {
      for (NodeId node = 1; node < env_.nodes(); ++node)
        await(endpoint, round + std::to_string(node), node, deadline);
      const Time leave = env_.now() + kSettle;
      publish(round + "all", leave);
      endpoint.run_for(kSettle);
    } else {
      publish(round + std::to_string(env_.node()), 0);
      const Time leave = await(endpoint, round + "all", 0, deadline);
      // The clocks of two hosts may differ.
      endpoint.run_for(std::clamp<Time>(leave - env_.now(), 0, kSettle));
    }
  }

 private:
  static constexpr Time kLook = 20 * kMicrosecond;  // between two look-ups
  static constexpr Time kSettle = kMillisecond;     // more than a look-up that finds its key takes

  void publish(const std::string& key, Time value) {
    env_.device().rendezvous().publish_value(key, value);
  }
  Time await(Endpoint& endpoint, const std::string& key, NodeId node, Time deadline) {
    endpoint.run_once();  // a look-up that finds its key takes a handshake's time
    for (;;) {
      if (const auto found = env_.device().rendezvous().find(key)) {
        Time value = 0;
        if (found->size() != sizeof value) runtime::throw_piece(key, found->size(), sizeof value);
        std::memcpy(&value, found->data(), sizeof value);
        return value;
      }
      if (env_.now() >= deadline) {
        throw Error(ErrorCode::kTimeout, "node " + std::to_string(env_.node()) +
                                             " waited for node " + std::to_string(node) +
                                             "; does that node run the same program?")
            .blaming({node});
      }
      endpoint.run_for(kLook);
    }
  }

  Env& env_;
  std::string name_;
  std::uint32_t round_ = 0;
};

}  // namespace pyrdma::erpc
