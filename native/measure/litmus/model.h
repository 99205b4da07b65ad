// A reference model of one-sided RDMA between x86 machines: every outcome that a litmus test may
// have, and how weak the memory must be for it. After the operational model of Ambal et al.
// (OOPSLA 2024, "Semantics of Remote Direct Memory Access: Operational and Declarative Models of
// RDMA on TSO Architectures"): queue pairs are pipes between memories, with a buffer of writes on
// their way to memory at the end. What differs from it is stated at Level.
#pragma once
#include <map>

#include "measure/litmus/program.h"

namespace pyrdma::measure::litmus {

/// How weak the memory must be for an outcome. Each level allows all that the ones before it do.
enum class Level : std::uint8_t {
  /// Every request takes effect at its post, at once.
  kSequential,
  /// Requests take effect after their post, those of one queue pair in order, others in any. The
  /// source of a put is read at any time until it takes effect, unless inline. A get's data arrives
  /// with its completion. This is the `strong` memory profile.
  kAsynchronous,
  /// Besides, written bytes reach memory word by word after the put has taken effect and perhaps
  /// after its completion, those of one queue pair in the order of its requests (not in relaxed-
  /// ordering memory), at the latest before a get, atomic or send of the queue pair takes effect.
  /// Gets read memory word by word, and their data lands so before the completion. An atomic keeps
  /// other requests through the same NIC off its word between its read and its write, but not the
  /// CPU. This is the `weak` memory profile.
  kLate,
  /// Besides, a get whose response was lost reads memory again, after later requests of its queue
  /// pair have taken effect, unless they were fenced. On a lossy network; Ambal et al. allow it
  /// always.
  kRepeated,
  /// Besides, the CPU's stores, and the posting of requests behind them, wait in a store buffer
  /// (x86-TSO).
  kStoreBuffer,
  kForbidden,
};
const char* to_string(Level level);

/// Every allowed outcome with the least level that allows it. Throws Error(kInvalidArgument) when
/// the program can wait for ever, or has too many states.
std::map<Outcome, Level> classify(const Program& program);

}  // namespace pyrdma::measure::litmus
