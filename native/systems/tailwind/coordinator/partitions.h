// How the work of a recovery is cut: which parts of a dead server's tablets go to which of the new
// owners (Tailwind, section 2.2; RAMCloud, "partitions"). Pure functions, for any thread.
#pragma once
#include <cstdint>
#include <vector>

#include "systems/tailwind/rpc/messages.h"

namespace pyrdma::tailwind {

/// What the tablets of a dead server hold together, and the most that one new owner should take.
/// Requires that both limits are not 0.
struct RecoveryLoad {
  std::uint64_t bytes = 0, records = 0;
  std::uint64_t most_bytes = 0, most_records = 0;
};

/// Cuts `tablets`, which do not overlap, into as many parts as keep `load` within its limits, and
/// into one at least. Keys are taken to be spread evenly over the hashes: each part has the same
/// number of hashes, or one more. Together the parts have all hashes of the tablets, each one once.
/// Returns nothing for no tablets. Costs the number of parts and tablets.
std::vector<std::vector<HashRange>> partitions(const std::vector<Tablet>& tablets,
                                               const RecoveryLoad& load);

struct Shares {
  std::uint64_t parts = 0;
  std::vector<std::vector<HashRange>> of_owners;
};
/// Gives the parts to new owners, in turns from owner `first` on. `rooms`: what each owner's log
/// still takes, of load.bytes. Where an owner has no room for a whole part, the parts are smaller
/// than those of partitions(); there are `least` of them or more. What fits nowhere goes to whoever
/// has the most room left: the others can store their shares. Requires an owner.
Shares shares(const std::vector<Tablet>& tablets, const RecoveryLoad& load,
              const std::vector<std::uint64_t>& rooms, std::size_t first, std::uint64_t least = 1);

}  // namespace pyrdma::tailwind
