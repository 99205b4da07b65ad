// Member is one member of a Raft group (Ongaro and Ousterhout 2014). Debian's libraft decides; this
// seam carries its messages, tells it the time and draws its random numbers, and stores its state.
//
// A member has no thread. Its owner calls turn() when a message has come, after a request, and when
// next_turn() is reached. All callbacks run inside turn(), and none runs after the member's end.
// Calls of one member never overlap.
//
// Order inside a turn: what came in goes to the library; then the term and the vote become durable;
// then messages leave; then the log becomes durable, and the library hears of it. So no message
// leaves before the term and vote that it speaks for are durable, and no entry is acknowledged
// before it is.
//
// Errors: a member whose storage fails, or whose library gives up, stops for good and says why in
// failure(). It answers nothing any more, and its owner may open a new one on the same storage. An
// exception of the kind NodeKilled passes through turn().
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "env/env.h"
#include "systems/erpc/raft/links.h"
#include "systems/erpc/raft/member_options.h"
#include "systems/erpc/raft/state_machine.h"
#include "systems/erpc/raft/wire.h"

namespace pyrdma::erpc::raft {

/// How a request to a group ended.
enum class Outcome : std::uint8_t {
  kAccepted,  // the callback will say more
  kDone,
  kNotLeader,  // nothing has happened
  kUnknown,    // the member leads no more, or stopped; it may have happened or may yet happen
  kBusy,       // nothing has happened; a change is still running
  kInvalid,    // no such server, or it has that role already
};

struct MemberCounters {
  std::uint64_t sent = 0, received = 0;
  std::uint64_t malformed = 0;  // dropped: no message, or its sender lies
  std::uint64_t refused = 0;    // dropped: well formed, but no correct member sends it now
  std::uint64_t too_long = 0;   // messages that Links could not have carried
  std::uint64_t elections_won = 0;
  std::uint64_t snapshots_taken = 0, snapshots_installed = 0;
};

class Member {
 public:
  virtual ~Member() = default;

  /// Takes a message of `from`. The library sees it in the next turn.
  virtual void receive(NodeId from, std::span<const std::byte> message) = 0;
  virtual void turn(Time now) = 0;
  /// Returns when the next turn is due: 0 if there is work now.
  virtual Time next_turn() const = 0;

  /// Appends a command of 1 to kMaxPayload bytes to the log. `done` runs once the state machine of
  /// this member has applied it, with the result. It runs only if the return is kAccepted.
  virtual Outcome propose(ByteView command,
                          std::function<void(Outcome, const KvAnswer& result)> done) = 0;
  /// `done` runs once all earlier entries are applied here, after a majority has confirmed that
  /// this member leads.
  virtual Outcome barrier(std::function<void(Outcome)> done) = 0;

  // Changes of the group, one at a time. add() makes a spare, which gets no entries; assign() makes
  // it a standby (gets entries), then a voter. The library lets a voter-to-be catch up first.
  virtual Outcome add(NodeId node, std::function<void(Outcome)> done) = 0;
  virtual Outcome assign(NodeId node, Role role, std::function<void(Outcome)> done) = 0;
  virtual Outcome remove(NodeId node, std::function<void(Outcome)> done) = 0;
  /// Hands the lead to a voter. `done` runs when it leads, or after an election timeout; leader()
  /// then tells which.
  virtual Outcome transfer(NodeId node, std::function<void(Outcome)> done) = 0;

  virtual bool leads() const = 0;
  virtual std::optional<NodeId> leader() const = 0;
  /// Returns whether a majority has answered this leader within the last election timeout, by the
  /// clock of its last turn. It is no proof that the member still leads.
  virtual bool heard_majority() const = 0;
  virtual std::uint64_t term() const = 0;
  virtual std::uint64_t vote() const = 0;  // node + 1, 0 for none
  virtual std::uint64_t last_index() const = 0;
  virtual std::uint64_t first_index() const = 0;
  virtual std::uint64_t commit_index() const = 0;
  virtual std::uint64_t applied_index() const = 0;
  virtual Servers servers() const = 0;
  virtual const MemberCounters& counters() const = 0;
  /// Why the member has stopped; empty while it runs.
  virtual const std::string& failure() const = 0;
};

/// Opens a member on the storage of `env`. All arguments outlive it. Throws Error(kUnavailable) if
/// raft_problem() is not empty and for damaged storage, and Error(kInvalidArgument) for options out
/// of their bounds.
std::unique_ptr<Member> open_member(Env& env, Links& links, StateMachine& state,
                                    const MemberOptions& options);

/// Deletes what a member has stored at this node. It must come back with an empty group, and be
/// added again: it may have voted.
void remove_store(Env& env);

/// Why open_member() cannot work here, with the Debian package to install; empty if it can.
std::string raft_problem();

}  // namespace pyrdma::erpc::raft
