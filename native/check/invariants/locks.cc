#include "check/invariants/locks.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "check/models.h"
#include "check/verdict.h"

namespace pyrdma::check {

namespace {

class OneLock {
 public:
  /// The calls come in the order of grants (ends of locks) and beginnings of unlocks.
  MaybeViolation granted(const History& history, const Operation& op) {
    if (holder_ != nullptr)
      return violation_of("two clients hold the lock at once: " + tell(history, *holder_) +
                              " and " + tell(history, op) +
                              " were granted it, and the first had not begun to unlock",
                          {*holder_, op});
    holder_ = &op;
    if (!op.output.is_integer()) return std::nullopt;
    const Operation* before = last_ticket_;
    last_ticket_ = &op;
    // A client whose lock ended unknown may hold tickets between.
    const bool unknown = !maybe_.empty();
    if (before == nullptr || op.output.a == before->output.a + 1 ||
        (unknown && op.output.a > before->output.a))
      return std::nullopt;
    return violation_of("ticket " + std::to_string(op.output.a) + " was granted after ticket " +
                            std::to_string(before->output.a) + ": " + tell(history, *before) +
                            ", " + tell(history, op),
                        {*before, op});
  }

  void maybe_granted(const Operation& op) { maybe_.insert(lock_owner(op)); }

  MaybeViolation unlocked(const History& history, const Operation& op) {
    if (holder_ != nullptr && lock_owner(*holder_) == lock_owner(op)) {
      holder_ = nullptr;
      return std::nullopt;
    }
    if (!op.known() || maybe_.count(lock_owner(op)) != 0) return std::nullopt;
    return violation_of("a client unlocked the lock without holding it: " + tell(history, op),
                        {op});
  }

 private:
  static std::string tell(const History& history, const Operation& op) {
    return describe(history, op) + " (" + where(op) + ')';
  }
  const Operation* holder_ = nullptr;
  const Operation* last_ticket_ = nullptr;
  std::set<std::int64_t> maybe_;  // owners of locks whose outcome is unknown
};

}  // namespace

MaybeViolation check_locks(const History& history, const Operations& operations) {
  struct Moment {
    std::uint32_t at;
    const Operation* op;
  };
  std::vector<Moment> moments;
  for (const Operation& op : operations.all) {
    if (op.f == Function::kLock) moments.push_back({op.known() ? op.ret : op.call, &op});
    if (op.f == Function::kUnlock) moments.push_back({op.call, &op});
  }
  std::ranges::sort(moments, {}, &Moment::at);
  std::unordered_map<Value, OneLock, ValueHash> locks;
  for (const Moment& moment : moments) {
    history.poll();
    const Operation& op = *moment.op;
    OneLock& lock = locks[op.key];
    MaybeViolation found;
    if (op.f == Function::kUnlock)
      found = lock.unlocked(history, op);
    else if (op.known())
      found = lock.granted(history, op);
    else
      lock.maybe_granted(op);
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace pyrdma::check
