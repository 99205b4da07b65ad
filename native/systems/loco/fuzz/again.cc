// Channels that are made again.
#include <algorithm>
#include <numeric>

#include "base/remote_word.h"
#include "systems/loco/fuzz/kinds.h"
#include "systems/loco/fuzz/node.h"

namespace pyrdma::loco::scenario {

// Each node destroys a channel and makes it again when it has a word of every peer, while peers may
// still have their old endpoints. In the last round only the first two nodes take part, in a
// channel whose name and generation are those of the round before. A run with crashes leaves this
// round out: one of the two could wait for the other, which waits for a dead node in the round
// before.
void Node::make_again(std::uint64_t epoch) {
  const bool crashes = have_crashes(world_.options.faults);
  const std::uint64_t rounds = crashes ? 3 : 4;
  Caller& me = manager_.caller(0);
  Rng rng(world_.options.seed, static_cast<std::int64_t>(epoch * env_.nodes() + env_.node()),
          "fuzz loco again");
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    std::vector<NodeId> nodes(round == 4 ? 2 : env_.nodes());
    std::iota(nodes.begin(), nodes.end(), NodeId{0});
    if (env_.node() >= nodes.size()) return;
    if (rng.below(2) == 0)
      env_.sleep_until(env_.now() + static_cast<Time>(rng.below(20 * kMicrosecond)));
    const char* name = round <= 2 ? "again" : "some";
    SharedRegion again(manager_, name, std::uint64_t{env_.nodes()} * 8, fabric::kRemoteWrite,
                       nodes);
    manager_.wait_for_ready();
    const std::uint64_t number = epoch * 4 + round;
    for (const NodeId peer : nodes) {
      auto word = me.block(8);
      *word.as<std::uint64_t>() = number;
      auto key = again.write(me, peer, 8 * env_.node(), word.sge(8));
      key.keep(std::move(word));
      require(key, peer, "a write");
    }
    const auto* words = reinterpret_cast<const std::uint64_t*>(again.local());
    const auto all_here = [&] {
      return std::all_of(nodes.begin(), nodes.end(),
                         [&](NodeId peer) { return load_acquire(words + peer) == number; });
    };
    me.wait_until(all_here, "words of a channel that was made again");
  }
}

}  // namespace pyrdma::loco::scenario
