// The common parts of all operations: the start, the lock of the key, and errors.
#include "systems/loco/kvstore/operation.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.h"
#include "base/error.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

void KvOperation::start(Kind kind, Key key) {
  PYRDMA_ASSERT(over());
  me_->report_dropped(store_);
  if (slot_.block.data() == nullptr) {
    slot_ = InFlight(me_->block(static_cast<std::uint32_t>(store_->slot_bytes_)));
  }
  kind_ = kind;
  key_ = key;
  outcome_ = Outcome::kPending;
  retrying_ = 0;
  settles_ = false;
}

void KvOperation::lookup(Key key) {
  const Scope step(me_->env(), scope::lookup);
  start(Kind::kLookup, key);
  find();
}

// The new value waits in the block, in the layout of the slot.
bool KvOperation::take(std::span<const std::byte> value) {
  if (value.size() > store_->options_.value_bytes) return !end(Outcome::kTooBig);
  std::byte* into = slot_.block.data() + kSlotFrame;
  std::memset(into, 0, store_->slot_bytes_ - kSlotFrame);
  std::ranges::copy(value, into);  // it may be empty
  return true;
}

void KvOperation::begin_locked() {
  lock_ = store_->locks_.start_acquire(*me_, store_->lock_of(key_));
  step_ = Step::kLocking;  // after an error the operation is over
}

void KvOperation::insert(Key key, std::span<const std::byte> value) {
  const Scope step(me_->env(), scope::change);
  start(Kind::kInsert, key);
  if (take(value)) begin_locked();
}

void KvOperation::update(Key key, std::span<const std::byte> value) {
  const Scope step(me_->env(), scope::change);
  start(Kind::kUpdate, key);
  if (take(value)) begin_locked();
}

void KvOperation::remove(Key key) {
  const Scope step(me_->env(), scope::change);
  start(Kind::kRemove, key);
  begin_locked();
}

std::span<const std::byte> KvOperation::value() const {
  return {slot_.block.data() + kSlotFrame, store_->options_.value_bytes};
}

bool KvOperation::advance(Time now) {
  const Scope step(me_->env(), scope::advance);
  switch (step_) {
    case Step::kOver:
      return true;
    case Step::kReading:
      if (!slot_.key.query()) return false;
      check_answer("key ", at_.node);
      return judge(slot_.block.data());
    case Step::kRetrying:
      return find();
    case Step::kLocking:
      return has_lock(now) && locked();
    case Step::kInquiring:
      if (!slot_.key.query()) return false;
      check_answer("key ", at_.node);
      return settle(*slot_.block.as<std::uint64_t>());
    case Step::kWriting:
      if (!slot_.key.query()) return false;
      if (!posted_) return write_locked();  // an error came between the requests of the write
      check_answer("key ", at_.node);
      return kind_ == Kind::kUpdate ? unlock(Outcome::kOk) : announce();
    case Step::kUnlocking:
      return unlock(outcome_);
    case Step::kReleasing:
      if (!slot_.key.query()) return false;
      check_answer("the lock of key ", store_->locks_.host_of(lock_.index()));
      return end(outcome_);
    case Step::kAnnouncing:
      return announce();
    case Step::kAnnounced:
      return announced() && (inserts() ? publish() : forget());
  }
  return false;
}

bool KvOperation::has_lock(Time now) {
  try {
    return lock_.poll(now);
  } catch (const Error&) {
    step_ = Step::kOver;  // the acquisition has ended, or passes its ticket on once it is dropped
    throw;
  }
}

bool KvOperation::locked() {
  holds_lock_ = true;
  if (store_->locks_.in_doubt(lock_.index())) [[unlikely]]
    return inquire();
  return change_locked();
}

bool KvOperation::change_locked() {
  const std::optional<Location> found = store_->index_.find(key_);
  if (kind_ == Kind::kInsert) return found ? unlock(Outcome::kDuplicate) : insert_locked();
  if (!found) return unlock(Outcome::kMissing);
  at_ = *found;
  return write_locked();
}

bool KvOperation::write_locked() {
  return kind_ == Kind::kUpdate ? update_locked() : remove_locked();
}

bool KvOperation::end(Outcome outcome) {
  outcome_ = outcome;
  step_ = Step::kOver;
  return true;
}

bool KvOperation::unlock(Outcome outcome) {
  if (!holds_lock_) return end(outcome);
  slot_.key = release();
  if (store_->options_.lock.unawaited_release) return end(outcome);
  outcome_ = outcome;
  step_ = Step::kReleasing;
  return advance();  // handed over: the operation need not wait
}

// The data under the lock is placed, so the release needs no fence.
AckKey KvOperation::release(bool in_doubt) {
  AckKey key = store_->locks_.start_release(*me_, lock_.index(), in_doubt);
  holds_lock_ = false;
  return key;
}

// Posts a write to the slot of at_, from the same offset of the block. A read of no bytes after it,
// on the same queue pair, places the write (paper, section 2.2).
void KvOperation::post_write(std::uint32_t offset, std::uint32_t bytes, bool placed) {
  const fabric::Sge from = slot_.block.sge(bytes, offset);
  std::array<fabric::WorkRequest, 2> requests;
  requests[0] = write_request(from, offset);
  requests[1].opcode = fabric::Opcode::kRead;
  post({requests.data(), placed ? 2U : 1U});
}

// Posts requests to the slot's node, with one doorbell for all or one for each.
void KvOperation::post(std::span<fabric::WorkRequest> requests) {
  if (store_->options_.lock.one_doorbell) {
    me_->post(at_.node, requests, slot_.key);
  } else {
    for (fabric::WorkRequest& request : requests) me_->post(at_.node, {&request, 1}, slot_.key);
  }
  posted_ = true;
}

void KvOperation::begin_write() {
  step_ = Step::kWriting;
  slot_.key = AckKey();
  posted_ = false;
}

fabric::WorkRequest KvOperation::write_request(const fabric::Sge& from,
                                               std::uint32_t offset) const {
  const RemoteRegion& region = store_->values_.at(at_.node);
  fabric::WorkRequest write;
  write.opcode = fabric::Opcode::kWrite;
  write.sges = &from;
  write.sge_count = 1;
  write.remote_addr = region.addr + at_.slot * store_->slot_bytes_ + offset;
  write.rkey = region.rkey;
  return write;
}

void KvOperation::check_answer(const char* what, NodeId node) {
  const fabric::Status status = slot_.key.status();
  if (status == fabric::Status::kSuccess) [[likely]]
    return;
  // No request of this operation is in flight. Its write may have happened or not; see doubt.cc.
  if (holds_lock_) release(step_ == Step::kWriting);
  step_ = Step::kOver;
  throw Error(ErrorCode::kUnavailable,
              what + std::to_string(key_) + " of '" + store_->name() + "' is at node " +
                  std::to_string(node) + ", which does not answer (" + to_string(status) +
                  "): it was killed or cut off",
              false)
      .blaming({node});
}

bool KvOperation::overdue() {
  Manager& manager = store_->manager();
  if (dropped_) return false;  // it goes on as long as it takes
  const Time now = manager.env().now();
  if (retrying_ == 0) retrying_ = now;
  return now - retrying_ >= manager.options().wait_timeout;
}

void KvOperation::throw_cause(const Error& error) {
  const bool announces = step_ == Step::kAnnouncing || step_ == Step::kAnnounced;
  if (error.code() == ErrorCode::kTimeout && !overdue_) {
    if (step_ == Step::kLocking && !holds_lock_) lock_.throw_overdue();
    if (announces) check_readers();
    if (kind_ == Kind::kLookup && retrying_ != 0) throw_torn();
  }
  overdue_ = true;
  throw;
}

void KvOperation::throw_overdue(const std::string& why, const std::vector<NodeId>& blamed) {
  overdue_ = true;
  Manager& manager = store_->manager();
  constexpr std::array<const char*, 4> kDone = {"read", "inserted", "updated", "removed"};
  throw Error(ErrorCode::kTimeout,
              "key " + std::to_string(key_) + " of '" + store_->name() + "' could not be " +
                  kDone[static_cast<std::size_t>(kind_)] + " by node " +
                  std::to_string(store_->self()) + " within " +
                  std::to_string(manager.options().wait_timeout / kMillisecond) + " ms: " + why,
              false)
      .blaming(blamed);
}

/// Goes on until the key's lock is given back.
class KvOperation::Dropped final : public runtime::Unfinished {
 public:
  explicit Dropped(KvOperation&& op)
      : runtime::Unfinished(op.store_, op.overdue_), op_(std::move(op)) {
    op_.dropped_ = true;
  }
  ~Dropped() override { op_.holds_lock_ = false; }  // the store may be gone
  bool poll() override {
    if (op_.step_ != Step::kLocking) {
      op_.advance();
    } else if (op_.slot_.key.query()) {
      op_.release();  // an error came before the change began
    }
    return !op_.holds_lock_;
  }

 private:
  KvOperation op_;
};

void KvOperation::drop() { me_->finish_later(std::make_unique<Dropped>(std::move(*this))); }

}  // namespace pyrdma::loco
