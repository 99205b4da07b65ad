#include "systems/loco/kvstore/store.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/checksum.h"
#include "base/error.h"
#include "base/remote_word.h"

namespace pyrdma::loco {

namespace {

std::uint64_t slots_of(const KvOptions& options, std::uint64_t nodes) {
  return options.slots != 0 ? options.slots : (options.keys + nodes - 1) / nodes;
}

void check(const char* option, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string("store option ") + option + " is " + std::to_string(value) +
                  "; it must be " + std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace

KvStore::KvStore(Manager& manager, std::string name, const KvOptions& options,
                 std::vector<NodeId> participants)
    : Channel(manager, std::move(name), std::move(participants)),
      options_(options),
      slot_bytes_(kSlotFrame + (std::uint64_t{options.value_bytes} + 7) / 8 * 8),
      slots_(slots_of(options, Channel::participants().size())),
      index_(manager.env(), slots_ * Channel::participants().size() + options.locks),
      values_(*this, "values", slots_ * slot_bytes_, kReadWrite),
      footprint_(manager.env(), values_.local(), slots_ * slot_bytes_),
      locks_(*this, "locks", options.locks, options.lock),
      announcing_(manager.env()),
      slots_mutex_(manager.env()),
      hold_draws_(manager.env().rng("tracker holds")) {
  check_options();
  agree("keys", options_.keys);
  agree("value_bytes", options_.value_bytes);
  agree("fence", options_.fence ? 1 : 0);
  for (const NodeId node : Channel::participants()) {
    trackers_.push_back(std::make_unique<RingBuffer>(*this, "tracker" + std::to_string(node), node,
                                                     options_.tracker_bytes,
                                                     options_.first_position));
  }
  if (options_.first_counter != 1) {
    for (std::uint32_t number = 0; number < slots_; ++number)
      set_valid(number, options_.first_counter - 1, false);
  }
  join();
  tracker_ = manager.caller(0).runtime().spawn("loco/tracker", [this] { track(); });
}

KvStore::~KvStore() {
  manager().caller(0).runtime().forget(this);
  stopping_.store(true, std::memory_order_release);
}

void KvStore::check_options() {
  for (const NodeId node : participants()) check("participants", node, 0, Index::kLastNode);
  check("keys", options_.keys, 1, 1ULL << 40);
  check("slots", slots_, 1, ~std::uint32_t{0});
  check("value_bytes", options_.value_bytes, 1, manager().options().block_bytes - kSlotFrame);
  check("first_counter", options_.first_counter, 1, kCounterMask);
  check("tracker_bytes", options_.tracker_bytes, 128, 1ULL << 32);  // two messages
  if (manager().options().callers < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                "store '" + name() +
                    "' needs a caller for its tracker thread; set the manager's `callers` to 2 or "
                    "more");
  }
}

void KvStore::load(std::uint64_t count, bool stored, std::uint64_t (*value_of)(Key)) {
  const std::uint64_t nodes = participants().size();
  if ((count + nodes - 1) / nodes > slots_) {
    throw Error(ErrorCode::kExhausted, "store '" + name() + "' has " + std::to_string(slots_) +
                                           " slots on each of " + std::to_string(nodes) +
                                           " nodes, too few for " + std::to_string(count) +
                                           " keys; raise `keys` or `slots`");
  }
  if (loaded_ || fresh_ != 0 || index_.size() != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "store '" + name() + "' on node " + std::to_string(self()) + " has " +
                    std::to_string(index_.size()) + " keys and " + std::to_string(fresh_) +
                    " slots in use" + (loaded_ ? ", from an earlier load()" : "") +
                    "; call load() once, before any operation of any node");
  }
  loaded_ = true;
  const Spread spread{count, participants(), options_.first_counter};
  std::vector<std::byte> value(slot_bytes_ - kSlotFrame);
  for (Key key = rank_of(self()); key < count; key += nodes) {
    const std::uint64_t word = value_of(key);
    std::memcpy(value.data(), &word, sizeof word);
    write_slot(fresh_++, options_.first_counter, true, value.data());
  }
  if (!stored) return index_.begin_with(spread);
  for (Key key = 0; key < count; ++key) index_.set(key, spread.of(key));
}

std::uint64_t KvStore::sum_of(const std::byte* value, std::uint32_t counter) const {
  std::span<const std::byte> bytes(value, slot_bytes_ - kSlotFrame);
  return mix64(manager().bugs().checksum_of_value(bytes) ^ counter);
}

// A reader that reads in the middle sees a checksum that does not match.
void KvStore::write_slot(std::uint32_t number, std::uint32_t counter, bool valid,
                         const std::byte* value) {
  std::byte* at = slot(number);
  const std::uint64_t sum = sum_of(value, counter);
  set_valid(number, counter, valid);
  copy_to_shared(at + kSlotFrame, value, slot_bytes_ - kSlotFrame);
  store_release(reinterpret_cast<std::uint64_t*>(at + kSlotHead), sum);
}

void KvStore::set_valid(std::uint32_t number, std::uint32_t counter, bool valid) {
  store_release(reinterpret_cast<std::uint64_t*>(slot(number)), state_word(counter, valid));
}

bool KvStore::take_slot(std::uint32_t& number) {
  const std::lock_guard lock(slots_mutex_);
  if (!freed_.empty()) {
    number = freed_.back();
    freed_.pop_back();
    return true;
  }
  if (fresh_ == slots_) return false;
  number = fresh_++;
  return true;
}

void KvStore::give_slot(std::uint32_t number) {
  const std::lock_guard lock(slots_mutex_);
  freed_.push_back(number);
}

std::uint64_t KvStore::free_slots() {
  const std::lock_guard lock(slots_mutex_);
  return freed_.size() + slots_ - fresh_;
}

std::string KvStore::describe(Outcome outcome) const {
  switch (outcome) {
    case Outcome::kPending:
      return "in progress";
    case Outcome::kOk:
      return "done";
    case Outcome::kMissing:
      return "no such key";
    case Outcome::kDuplicate:
      return "the key already exists; use update";
    case Outcome::kFull:
      return "all " + std::to_string(slots_) + " slots of node " + std::to_string(self()) +
             " hold values; remove some, or raise `slots` or `keys` of store '" + name() + "'";
    case Outcome::kTooBig:
      return "store '" + name() + "' holds values of up to " +
             std::to_string(options_.value_bytes) + " bytes; raise `value_bytes`";
  }
  return "";
}

Outcome KvStore::run(Caller& me, KvOperation& operation) {
  try {
    if (!operation.poll())
      me.wait_until([&] { return operation.poll(); }, "completion of an operation on a store");
  } catch (const Error& error) {
    operation.throw_cause(error);
  }
  return operation.outcome();
}

Outcome KvStore::lookup(Caller& me, Key key, std::span<std::byte> value) {
  KvOperation operation(*this, me);
  operation.lookup(key);
  const Outcome outcome = run(me, operation);
  if (outcome == Outcome::kOk) {
    const std::span<const std::byte> found = operation.value();
    std::ranges::copy(found.first(std::min(value.size(), found.size())), value.begin());
  }
  return outcome;
}

Outcome KvStore::insert(Caller& me, Key key, std::span<const std::byte> value) {
  KvOperation operation(*this, me);
  operation.insert(key, value);
  return run(me, operation);
}

Outcome KvStore::update(Caller& me, Key key, std::span<const std::byte> value) {
  KvOperation operation(*this, me);
  operation.update(key, value);
  return run(me, operation);
}

Outcome KvStore::remove(Caller& me, Key key) {
  KvOperation operation(*this, me);
  operation.remove(key);
  return run(me, operation);
}

}  // namespace pyrdma::loco
