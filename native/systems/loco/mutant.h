// Deliberate bugs, each that of a published system, which tests switch on to show that the checks
// would find them. The numbers are those of the list of mutations; none runs unless asked for.
#pragma once
#include <cstdint>

namespace pyrdma::loco {

enum class Mutant : std::uint8_t {
  kNone = 0,
  k1 = 1,  // no fence between the last write of a critical section and the release of the lock
  k2,      // a write's completion is taken for its visibility: fences read nothing back
  k3,      // an entry is published when its write has completed, before it is placed
  k4,      // readers compare an entry's first and last word instead of its checksum
  k6 = 6,  // the host of a word adds to it with its CPU, not through its NIC
  k7,      // a message's last word is trusted to mean that all before it has arrived
  k8,      // a ring's reader acknowledges a message before it has copied it
};

}  // namespace pyrdma::loco
