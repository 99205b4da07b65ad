// Decorators add faults to any provider: a device whose queue pairs, completion queues and control
// path fail as native/env/faults.h says. `kinds` leaves out the faults that the provider makes
// itself (the simulated network loses and delays). A device without faults is not wrapped.
//
//   loss, duplicate,    act on datagrams (UD). A lost datagram gets a wrong queue key, which every
//   reorder, delay,     provider drops, so that completions and errors stay the provider's own.
//   corruption          Late, duplicate and corrupt datagrams are copies that later posts and polls
//                       send.
//   queue_full          a post accepts fewer requests while one that will complete is outstanding
//   malformed           a request gets a wrong key, address or length; the provider reports it
//   qp_error            a post takes the queue pair to the error state, which flushes
//   memory_pressure     a call of the control path throws Error(kExhausted), definite
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>

#include "env/env.h"
#include "env/faults.h"
#include "fabric/fabric.h"

namespace pyrdma::fabric {

/// FaultKinds is a set of kinds.
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

/// The faults that the decorators can make where time is real. With `delay` among the kinds, the
/// decorators also watch FaultOptions::heal_at themselves.
inline constexpr FaultKinds kHookFaults{
    Fault::loss,       Fault::duplicate, Fault::reorder,  Fault::delay,          Fault::corruption,
    Fault::queue_full, Fault::malformed, Fault::qp_error, Fault::memory_pressure};
/// The faults that remain for the decorators where the network itself is simulated.
inline constexpr FaultKinds kHookFaultsOfSim{Fault::queue_full, Fault::malformed, Fault::qp_error,
                                             Fault::memory_pressure};

/// Makes a device that creates and accepts only decorated objects. `inner`, `env` and `faults` must
/// outlive it. No other thread may draw from `faults`.
std::unique_ptr<Device> wrap_with_faults(Device& inner, Env& env, FaultStream& faults,
                                         FaultKinds kinds);

}  // namespace pyrdma::fabric
