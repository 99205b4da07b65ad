// A storm is one run of the scenario `erpc_raft_group`: its plan, its clients, its operator who
// changes the group, and the end, at which all must be well.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "check/history.h"
#include "fuzz/scenario.h"
#include "systems/erpc/fuzz/raft/replacement.h"
#include "systems/erpc/fuzz/raft/weather.h"

namespace pyrdma::erpc::raft {

class Storm {
 public:
  Storm(const fuzz::Options& options, fuzz::Outcome& outcome);
  /// Runs the plan and judges it. Requires libraft.
  void run();

 private:
  static constexpr std::uint64_t kClients = 3, kKeys = 3;
  static constexpr int kFlood = 24;  // puts at once
  enum class Act : std::uint8_t { kPut, kGet, kFlood, kTransfer, kReplace, kDemote };
  struct Planned {
    std::uint32_t id = 0;
    Act act = Act::kPut;
    std::uint64_t key = 0;
    NodeId node = 0;
    Time pause = 0;
  };
  /// A client of the store; the last one is the operator of the group.
  struct User {
    std::uint64_t number = 0;
    World::Client* client = nullptr;
    std::vector<Planned> plan;
    std::size_t next = 0;
    bool open = false;
    Planned op;
    std::int64_t value = 0;
    std::uint64_t mark = 0;  // effects of faults when the operation began
  };

  static WorldOptions world_options(const fuzz::Options& options, FaultCounters& counters);
  void draw_plan();
  void found(std::string_view kind, const std::string& text);
  void begin_next(User& user);
  void begin(User& user);
  void ended(const User& user);
  std::uint64_t effects() const;
  void take_answer(User& user, const KvAnswer& answer);
  void operate(const Planned& op);
  void flood();
  void demote(NodeId n);
  void crash(NodeId n, bool power);
  void restart(NodeId n);
  void replace(NodeId n);
  void tend();
  void look();
  void begin_faults();
  void end_of_faults();
  bool is_settled();
  void end_well();
  void fill();
  bool may_lose(NodeId n) const;
  bool are_out(NodeId n) const;
  void note(const std::string& what);
  static Key key_of(std::uint64_t number);
  static std::string describe(ByteView message);

  const fuzz::Options& options_;
  fuzz::Outcome& outcome_;
  Rng rng_;
  World world_;
  Weather weather_;
  std::vector<User> users_;
  std::vector<std::unique_ptr<Replacement>> replacements_;
  std::set<NodeId> demoted_;
  check::History history_;
  std::uint64_t puts_ = 0, flooded_ = 0;
  std::int64_t value_ = 0;
  std::uint32_t end_after_ = 0;  // operations
  bool faults_on_ = false;
  std::size_t judged_ = 0;  // findings of the invariants
  std::uint64_t digest_ = 0;
};

}  // namespace pyrdma::erpc::raft
