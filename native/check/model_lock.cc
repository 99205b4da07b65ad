// A lock excludes owners from each other: state 0 is free, the other states are owners.
#include <unordered_map>

#include "check/models.h"

namespace pyrdma::check {

namespace {

class Lock final : public Model {
 public:
  explicit Lock(OperationsView ops) {
    std::unordered_map<std::int64_t, StateId> owners;
    for (const Operation& op : ops) {
      const auto owner =
          owners.try_emplace(lock_owner(op), static_cast<StateId>(owners.size() + 1));
      owners_.push_back(owner.first->second);
      locks_.push_back(op.f == Function::kLock);
    }
  }

  StateId initial() const override { return 0; }

  std::uint32_t class_of(std::uint32_t op) const override {
    return owners_[op] * 2 + (locks_[op] ? 1 : 0);
  }

  StateId step(StateId from, std::uint32_t op) override {
    const StateId owner = owners_[op];
    const StateId needs = locks_[op] ? 0 : owner;
    if (from != needs && from != kAnyState) return kNoState;
    return locks_[op] ? owner : 0;
  }

 private:
  std::vector<StateId> owners_;
  std::vector<bool> locks_;
};

}  // namespace

std::unique_ptr<Model> make_lock(OperationsView ops) { return std::make_unique<Lock>(ops); }

}  // namespace pyrdma::check
