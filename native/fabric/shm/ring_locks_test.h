// The locks of a node's rings, for tests of peers that hold them.
#pragma once
#include "fabric/shm/pair_test.h"

namespace pyrdma::fabric::shm {

inline constexpr Time kSoon = 500 * kMillisecond;  // much less than kLockTimeout, on a busy machine

inline QpEntry& entry_of(Node& node, const QueuePair& qp) {
  return node.control().queue_pairs[qp_slot(qp.qp_num())];
}
inline SharedLock& lock_at(Node& node, std::uint64_t offset) {
  return reinterpret_cast<RingHead*>(reinterpret_cast<std::byte*>(&node.control()) + offset)->lock;
}
inline SharedLock& receives_lock(Node& node, const QueuePair& qp) {
  return lock_at(node, relaxed(entry_of(node, qp).receives));
}
inline SharedLock& completions_lock(Node& node, const QueuePair& qp) {
  return lock_at(node, relaxed(entry_of(node, qp).completions));
}

}  // namespace pyrdma::fabric::shm
