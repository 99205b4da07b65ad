#include "systems/loco/baselines/sherman.h"

#include <array>
#include <cstring>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/error.h"
#include "systems/loco/scopes.h"

namespace pyrdma::loco {

namespace {

std::uint64_t sum_of(Key key, std::uint64_t value) { return mix64(mix64(key) ^ value); }

constexpr std::uint64_t kCachedBytes = 16;  // key and address of a leaf in the cached nodes
constexpr std::uint64_t kLevels = 4;        // levels of cached internal nodes, for millions of keys

}  // namespace

Sherman::Sherman(Manager& manager, std::string name, const ShermanOptions& options)
    : Channel(manager, std::move(name)),
      options_(options),
      leaves_(*this, "leaves", offset_of(leaf_of(options.keys) + participants().size()),
              kReadWrite),
      footprint_(manager.env(), nullptr, (leaf_of(options.keys) + 1) * kCachedBytes),
      locks_(*this, "locks", options.locks * participants().size(),
             {.local_queues = options.local_queues,
              .grant = options.grant,
              .first_place = options.first_place}) {
  if (manager.options().block_bytes < kLeafBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                "temporary blocks of " + std::to_string(manager.options().block_bytes) +
                    " bytes cannot hold a leaf of '" + Channel::name() +
                    "'; give the manager block_bytes of " + std::to_string(kLeafBytes));
  }
  join();
}

Sherman::~Sherman() { manager().caller(0).runtime().forget(this); }

// The lock is at the node of the leaf.
std::uint64_t Sherman::lock_of(std::uint64_t leaf) const {
  const std::uint64_t nodes = participants().size();
  return leaf / nodes % options_.locks * nodes + leaf % nodes;
}

void Sherman::load() {
  for (std::uint64_t leaf = rank_of(self()); leaf <= leaf_of(options_.keys - 1);
       leaf += participants().size()) {
    auto* entries = reinterpret_cast<Entry*>(leaves_.local() + offset_of(leaf) + kHead);
    for (std::uint32_t i = 0; i < kFanout; ++i) {
      const Key key = leaf * kFanout + i;
      entries[i] = {key, key, sum_of(key, key)};
    }
  }
}

void ShermanOperation::start(Key key) {
  PYRDMA_ASSERT(over());
  PYRDMA_CHECK(key, <, tree_->options_.keys);
  me_->report_dropped(tree_);
  if (leaf_.block.data() == nullptr) leaf_ = InFlight(me_->block(Sherman::kLeafBytes));
  // A descent through cached internal nodes, which hold a key and an address for each leaf.
  // The upper levels stay in the core's own cache.
  for (std::uint64_t level = 0; level < kLevels; ++level) {
    const Scope step(me_->env(), scope::sherman_level);
  }
  me_->env().charge_walk(tree_->footprint_, this);
  key_ = key;
  outcome_ = Outcome::kPending;
  failure_ = fabric::Status::kSuccess;
}

void ShermanOperation::lookup(Key key) {
  const Scope step(me_->env(), scope::sherman_begin);
  start(key);
  read_leaf();
  step_ = Step::kReading;
}

void ShermanOperation::update(Key key, std::uint64_t value) {
  const Scope step(me_->env(), scope::sherman_begin);
  start(key);
  value_ = value;
  lock_ = tree_->locks_.start_acquire(*me_, tree_->lock_of(tree_->leaf_of(key)));
  step_ = Step::kLocking;
}

void ShermanOperation::read_leaf() {
  const std::uint64_t leaf = tree_->leaf_of(key_);
  const bool whole = tree_->options_.whole_leaf;
  const std::uint32_t offset = whole ? 0 : Sherman::entry_of(key_);
  leaf_.key = tree_->leaves_.read(
      *me_, tree_->node_of(leaf), tree_->offset_of(leaf) + offset,
      leaf_.block.sge(whole ? Sherman::kLeafBytes : sizeof(Sherman::Entry), offset));
}

const Sherman::Entry* ShermanOperation::find() const {
  return reinterpret_cast<const Sherman::Entry*>(leaf_.block.data() + Sherman::entry_of(key_));
}

bool ShermanOperation::has_lock() {
  try {
    return lock_.poll();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) step_ = Step::kOver;  // the acquisition has ended
    throw;
  }
}

bool ShermanOperation::advance() {
  const Scope step(me_->env(), scope::sherman_advance);
  if (step_ == Step::kLocking) {
    if (!has_lock()) return false;
    read_leaf();
    step_ = Step::kReadingLocked;
    return false;
  }
  if (!leaf_.key.query()) return false;
  if (failure_ == fabric::Status::kSuccess) failure_ = leaf_.key.status();
  const bool failed = failure_ != fabric::Status::kSuccess;
  if (step_ == Step::kReading) {
    if (failed) throw_failure();
    return judge();
  }
  if (step_ == Step::kReadingLocked && !failed) return write_and_unlock();
  // After an error too: the threads of this node wait for their turn.
  if (step_ == Step::kReadingLocked ||
      (step_ == Step::kWriting && !tree_->options_.combined_unlock)) {
    leaf_.key = tree_->locks_.start_release(*me_, tree_->lock_of(tree_->leaf_of(key_)), {});
    step_ = Step::kUnlocking;
    if (!leaf_.key.query())
      return false;  // a hand-over posts nothing, so nothing would wake a waiter
  }
  tree_->locks_.end_release(tree_->lock_of(tree_->leaf_of(key_)));
  if (failed) throw_failure();
  return end(Outcome::kOk);
}

void ShermanOperation::throw_failure() {
  step_ = Step::kOver;
  const NodeId node = tree_->node_of(tree_->leaf_of(key_));
  throw Error(ErrorCode::kUnavailable,
              "key " + std::to_string(key_) + " of '" + tree_->name() + "' is at node " +
                  std::to_string(node) + ", which does not answer (" + to_string(failure_) + ")",
              false)
      .blaming({node});
}

bool ShermanOperation::judge() {
  const Sherman::Entry* entry = find();
  if (entry->sum != sum_of(entry->key, entry->value)) {
    read_leaf();  // the leaf was torn
    return false;
  }
  value_ = entry->value;
  return end(entry->key == key_ ? Outcome::kOk : Outcome::kMissing);
}

bool ShermanOperation::write_and_unlock() {
  const Scope step(me_->env(), scope::sherman_write);
  const std::uint64_t leaf = tree_->leaf_of(key_);
  const RemoteRegion& region = tree_->leaves_.at(tree_->node_of(leaf));
  const auto offset =
      static_cast<std::uint32_t>(reinterpret_cast<const std::byte*>(find()) - leaf_.block.data());
  const Sherman::Entry entry{key_, value_, sum_of(key_, value_)};
  std::memcpy(leaf_.block.data() + offset, &entry, sizeof entry);
  const fabric::Sge from = leaf_.block.sge(sizeof entry, offset);
  std::array<fabric::WorkRequest, 2> before;
  before[0].opcode = fabric::Opcode::kWrite;
  before[0].sges = &from;
  before[0].sge_count = 1;
  before[0].remote_addr = region.addr + tree_->offset_of(leaf) + offset;
  before[0].rkey = region.rkey;
  before[1].opcode = fabric::Opcode::kRead;
  const bool placed = tree_->manager().bugs().places_update(tree_->options_.fence);
  const std::span<fabric::WorkRequest> requests{before.data(), placed ? 2U : 1U};
  leaf_.key = tree_->options_.combined_unlock
                  ? tree_->locks_.start_release(*me_, tree_->lock_of(leaf), requests)
                  : me_->post(tree_->node_of(leaf), requests);
  step_ = Step::kWriting;
  return false;
}

/// Goes on until the lock is given back.
class ShermanOperation::Dropped final : public runtime::Unfinished {
 public:
  explicit Dropped(ShermanOperation&& op)
      : runtime::Unfinished(op.tree_, false), op_(std::move(op)) {}
  ~Dropped() override { op_.step_ = Step::kOver; }  // the tree may be gone
  bool poll() override { return op_.poll(); }

 private:
  ShermanOperation op_;
};

void ShermanOperation::drop() { me_->finish_later(std::make_unique<Dropped>(std::move(*this))); }

bool ShermanOperation::end(Outcome outcome) {
  outcome_ = outcome;
  step_ = Step::kOver;
  return true;
}

}  // namespace pyrdma::loco
