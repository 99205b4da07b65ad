// A reference model of one-sided RDMA between x86 machines. It gives every possible outcome of a
// litmus test, and how weak the memory must be for it. It follows the operational model of Ambal et
// al. (OOPSLA 2024, "Semantics of Remote Direct Memory Access: Operational and Declarative Models
// of RDMA on TSO Architectures"): queue pairs are pipes between memories, with a buffer at the end
// for writes on their way to memory. Level states the differences.
#pragma once
#include <map>

#include "measure/litmus/program.h"

namespace pyrdma::measure::litmus {

/// Level says how weak the memory must be for an outcome. Each level allows all outcomes of the
/// levels before it.
enum class Level : std::uint8_t {
  /// Every request takes effect at its post, at once.
  kSequential,
  /// Requests take effect after their post: those of one queue pair in order, others in any order.
  /// The NIC reads the source of a put at any time until the put takes effect, unless the put is
  /// inline. A get's data arrives with its completion. This is the `strong` memory profile.
  kAsynchronous,
  /// In addition, written bytes reach memory word by word after the put has taken effect, perhaps
  /// after its completion. The words of one queue pair arrive in the order of its requests (except
  /// in relaxed-ordering memory), at the latest before a get, atomic or send of the queue pair
  /// takes effect. Gets read memory word by word, and their data lands word by word before the
  /// completion. Between its read and its write, an atomic excludes other requests through the same
  /// NIC from its word, but not the CPU. This is the `weak` memory profile.
  kLate,
  /// In addition, a get whose response was lost reads memory again after later requests of its
  /// queue pair have taken effect, unless a fence held them back. This happens on a lossy network;
  /// Ambal et al. always allow it.
  kRepeated,
  /// In addition, the CPU's stores, and the posts of requests after them, wait in a store buffer
  /// (x86-TSO).
  kStoreBuffer,
  kForbidden,
};
const char* to_string(Level level);

/// Returns every allowed outcome with the least level that allows it. Throws
/// Error(kInvalidArgument) when the program can wait forever or has too many states.
std::map<Outcome, Level> classify(const Program& program);

}  // namespace pyrdma::measure::litmus
