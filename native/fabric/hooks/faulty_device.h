// Faults on any provider, by decorators: a device whose queue pairs, completion queues and control
// path fail now and then as native/env/faults.h says. What a provider does itself (the simulated
// network loses and delays) is left out of the kinds. A device without faults is not wrapped.
//
//   loss, duplicate,    datagrams (UD). A lost one is sent to a wrong queue key, which every
//   reorder, delay,     provider drops, so that completions and errors stay the provider's own;
//   what corruption          comes late, twice or spoilt is a copy, sent by later posts and polls.
//   queue_full          a post accepts fewer requests, while one that will complete is outstanding
//   malformed           key, address or length of a request is spoilt; the provider's error follows
//   qp_error            at a post the queue pair goes to the error state and flushes
//   memory_pressure     a call of the control path throws Error(kExhausted), definite
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>

#include "env/env.h"
#include "env/faults.h"
#include "fabric/fabric.h"

namespace pyrdma::fabric {

/// A set of kinds.
class FaultKinds {
 public:
  constexpr FaultKinds(std::initializer_list<Fault> kinds) {
    for (const Fault kind : kinds) bits_ |= std::uint64_t{1} << static_cast<unsigned>(kind);
  }
  constexpr bool has(Fault kind) const { return (bits_ >> static_cast<unsigned>(kind) & 1) != 0; }

 private:
  static_assert(kFaults <= 64);
  std::uint64_t bits_ = 0;
};

/// What the hooks can do where time is real. `delay` among the kinds also means that the hooks
/// watch FaultOptions::heal_at themselves.
inline constexpr FaultKinds kHookFaults{
    Fault::loss,       Fault::duplicate, Fault::reorder,  Fault::delay,          Fault::corruption,
    Fault::queue_full, Fault::malformed, Fault::qp_error, Fault::memory_pressure};
/// What is left to the hooks where the network itself is simulated.
inline constexpr FaultKinds kHookFaultsOfSim{Fault::queue_full, Fault::malformed, Fault::qp_error,
                                             Fault::memory_pressure};

/// A device that makes and takes decorated objects; all of them belong to it alone. `inner`, `env`
/// and `faults` outlive it; nothing else draws from `faults` on another thread.
std::unique_ptr<Device> wrap_with_faults(Device& inner, Env& env, FaultStream& faults,
                                         FaultKinds kinds);

}  // namespace pyrdma::fabric
