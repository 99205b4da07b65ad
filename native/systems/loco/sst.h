// The shared state table (paper, sections 4.1 and 5.1.2; Derecho's). Each participant has a
// register, which only this participant writes; all others read it from their own copies. The rows
// are owned_vars. A row is made when its owner joins, because the participants are unknown before.
#pragma once
#include <memory>
#include <vector>

#include "systems/loco/owned_var.h"

namespace pyrdma::loco {

template <class T>
class Sst : public Channel {
 public:
  using Row = OwnedVar<T>;

  Sst(Manager& manager, std::string name, std::vector<NodeId> participants = {})
      : Channel(manager, std::move(name), std::move(participants)) {
    make();
  }
  /// `initial`, the same on all nodes, is the value of all rows before their first store.
  Sst(Channel& parent, std::string_view name, const T& initial = T{})
      : Channel(parent, name), initial_(initial) {
    make();
  }

  /// Returns the rows in the order of participants(). The rows of others exist once the channel is
  /// ready.
  Row& row(std::uint32_t rank) { return *rows_[rank]; }
  Row& mine() { return row(rank_of(self())); }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(rows_.size()); }

  void store_mine(const T& value) { mine().store(value); }
  /// Writes this node's row to all other participants.
  AckKey push_broadcast(Caller& me) { return mine().push(me); }

 protected:
  void joined(NodeId peer) override { make_row(peer); }

 private:
  void make() {
    rows_.resize(participants().size());
    make_row(self());
    join();
  }
  void make_row(NodeId owner) {
    rows_[rank_of(owner)] = std::make_unique<Row>(*this, "ov" + std::to_string(owner), owner,
                                                  Updates::kPushed, initial_);
  }
  T initial_{};
  std::vector<std::unique_ptr<Row>> rows_;
};

}  // namespace pyrdma::loco
