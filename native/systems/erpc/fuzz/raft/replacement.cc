#include "systems/erpc/fuzz/raft/replacement.h"

namespace pyrdma::erpc::raft {

namespace {

constexpr Time kGiveUp = 5 * kMillisecond;  // a leader that has ended answers nothing

}  // namespace

void Replacement::ended(Stage stage, Outcome outcome) {
  if (outcome == Outcome::kDone && stage == stage_)
    stage_ = static_cast<Stage>(static_cast<int>(stage) + 1);
}

// A leader that does not know the node, or has it in its role, may know that by an entry that is
// not committed yet. Its barrier confirms it.
void Replacement::go_on() {
  if (is_over() || (open_ != nullptr && *open_ && world_.now() < asked_ + kGiveUp)) return;
  const auto leader = world_.leader();
  if (!leader) return;
  Member& member = world_.member(*leader);
  const Servers servers = member.servers();
  const auto there = std::ranges::find(servers, std::uint64_t{node_} + 1, &Server::id);
  open_ = std::make_shared<bool>(true);
  asked_ = world_.now();
  const auto done = [this, open = open_, stage = stage_](Outcome outcome) {
    if (*open) ended(stage, outcome);
    *open = false;
  };
  Outcome begun = Outcome::kBusy;
  if (stage_ == Stage::kRemove)
    begun = there == servers.end() ? member.barrier(done) : member.remove(node_, done);
  else if (stage_ == Stage::kAdd)
    begun = there != servers.end() ? member.barrier(done) : member.add(node_, done);
  else if (there != servers.end())
    begun = there->role == Role::kVoter ? member.barrier(done)
                                        : member.assign(node_, Role::kVoter, done);
  if (begun != Outcome::kAccepted) *open_ = false;
}

}  // namespace pyrdma::erpc::raft
