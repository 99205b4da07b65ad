// World runs a group of members with clients in virtual time: one loop, no threads. Messages may be
// lost, late, doubled, held back or blocked; members crash, pause, and have clocks and disks that
// err. All draws come from one seed. Tests tell it what happens (raft/script_test.h); the scenario
// draws it (storm.h).
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "env/sim/disk_file.h"
#include "env/sim/sim_env.h"
#include "fuzz/failing_syncs.h"
#include "systems/erpc/fuzz/raft/invariants.h"
#include "systems/erpc/raft/kv_client.h"
#include "systems/erpc/raft/kv_server.h"
#include "systems/erpc/raft/member.h"

namespace pyrdma::erpc::raft {

struct WorldOptions {
  std::uint32_t nodes = 3;  // those beyond `group` wait to be added
  std::uint32_t group = 3;
  std::uint64_t seed = 1;
  double loss = 0, duplicate = 0, reorder = 0;
  Time delay = kMillisecond;  // of a message; one that is reordered takes up to 50 times this
  double torn_writes = 1;     // of unsynced sectors, at a power failure
  Time timeout = 200 * kMillisecond, pause = 20 * kMillisecond;  // of clients; see KvClient
  /// Faults of messages and disks that are drawn, and where they are counted. Both outlive the
  /// world; null: none but those that calls set.
  const FaultOptions* faults = nullptr;
  FaultCounters* counters = nullptr;
  std::vector<NodeId> rotting = {};  // whose sectors may be lost or flip, if `faults` says so
  MemberOptions member;
  KvState::Options state;
  KvServer::Options server;
  Bugs bugs;
};

class World {
 public:
  using Answered = std::function<void(const KvAnswer&)>;
  explicit World(const WorldOptions& options);
  ~World();

  Time now() const { return now_; }
  /// Runs `what` at that time.
  void at(Time when, std::function<void()> what) {
    events_.emplace(std::pair{std::max(when, now_), next_event_++}, std::move(what));
  }
  void run(Time duration) {
    run_until([] { return false; }, duration);
  }
  /// Returns whether `ready` came true in time.
  bool run_until(const std::function<bool()>& ready, Time limit);

  Member& member(NodeId n) { return *nodes_.at(n)->member; }
  KvState& state(NodeId n) { return *nodes_.at(n)->state; }
  bool up(NodeId n) const { return nodes_.at(n)->member != nullptr; }
  /// The member that leads the highest term, if any.
  std::optional<NodeId> leader() const;
  std::uint32_t nodes() const { return static_cast<std::uint32_t>(nodes_.size()); }
  Invariants& invariants() { return invariants_; }
  const BranchCounts& branches() const { return branches_; }
  Rng& rng() { return rng_; }

  /// `power`: what was not synced is lost or torn.
  void crash(NodeId n, bool power = true);
  /// The node ends within a sync of several sectors, the next one but `passed`, before any of them
  /// is durable: its member fails, and waits for the crash.
  void end_at_sync(NodeId n, bool power, unsigned passed) {
    nodes_.at(n)->end = {power, passed, false};
  }
  /// Whether the crash of a member that has ended so fails the power; empty: it has not.
  std::optional<bool> ended_at_sync(NodeId n) const {
    const auto& end = nodes_.at(n)->end;
    return end && end->has_come ? std::optional(end->power) : std::nullopt;
  }
  /// Returns false if the member cannot start; why() tells the reason.
  bool restart(NodeId n);
  const std::string& why() const { return why_; }
  /// Whether the store was refused: it is damaged, and a further try ends so, too.
  bool is_refused() const { return refused_; }
  /// The storage is lost; the member comes back as a new one.
  void wipe(NodeId n);
  void pause(NodeId n, bool paused) { nodes_.at(n)->paused = paused; }
  /// The disk fails this share of the writes and syncs.
  void fail_disk(NodeId n, double rate);
  /// The member's clock runs at `permille` / 1000 of the true rate.
  void set_clock(NodeId n, Time permille);
  void jump_clock(NodeId n, Time by) { nodes_.at(n)->clock_base += by; }
  /// The disk of the member has no space for longer files.
  void fill_disk(NodeId n, bool full);
  void block(NodeId from, NodeId to, bool blocked = true);
  void isolate(NodeId n, bool isolated = true);
  /// Partitions that overlap: messages pass when each cut is taken back. `change`: 1 or -1.
  void cut(NodeId from, NodeId to, int change) { cuts_[{from, to}] += change; }
  /// From now on faults of the options are drawn.
  void begin_faults();
  /// Ends all that calls have set, and the faults that are drawn.
  void heal();
  bool is_healed() const { return healed_; }
  /// Messages wait until release().
  void hold(NodeId from, NodeId to) { held_[{from, to}]; }
  void release(NodeId from, NodeId to);
  /// Keeps a copy of each further message; replay() sends the copies once more.
  void record(NodeId from, NodeId to) { recorded_[{from, to}].clear(); }
  void replay(NodeId from, NodeId to) {
    for (const Bytes& bytes : recorded_[{from, to}])
      at(now_ + options_.delay, [this, from, to, bytes] { inject(from, to, bytes); });
  }
  /// Only this member's requests for votes pass.
  void let_stand(std::optional<NodeId> candidate) { candidate_ = candidate; }
  bool elect(NodeId n);
  void set_loss(double loss) { options_.loss = loss; }
  void set_duplicate(double rate) { options_.duplicate = rate; }
  void set_reorder(double rate) { options_.reorder = rate; }
  /// Sends bytes to a member as if `from` had sent them.
  void inject(NodeId from, NodeId to, ByteView bytes) {
    if (up(to)) member(to).receive(from, bytes);
  }
  /// Every message that a member sends.
  std::function<void(NodeId from, NodeId to, ByteView bytes)> on_send;

  /// Asks one member, without a network. `done` may run at once.
  void ask(NodeId n, ByteView command, Answered done);
  /// A client that sends its tries over the network, from outside the group.
  struct Client {
    std::unique_ptr<KvClient> logic;
    std::optional<KvAnswer> answer;
    std::function<void(const KvAnswer&)> on_answer;  // or null
  };
  Client& add_client(std::uint64_t id, std::vector<NodeId> members);
  bool finish(Client& client, Time limit) {
    return run_until([&] { return !client.logic->busy(); }, limit);
  }

 private:
  struct Node;
  /// Shows the clock of the world's node, which may end within a sync. The scheduler below stands
  /// still.
  class ClockedEnv final : public fuzz::EnvWithFailingSyncs {
   public:
    ClockedEnv(SimEnv& env, const World& world, Node& node)
        : EnvWithFailingSyncs(
              env, [&node](std::uint64_t unsynced) { return node.ends_at_sync(unsynced); }),
          world_(world),
          node_(node) {}
    Time now() override { return node_.local(world_.now()); }

   private:
    const World& world_;
    const Node& node_;
  };
  struct Node {
    std::unique_ptr<SimEnv> env;
    std::unique_ptr<ClockedEnv> clocked;
    std::unique_ptr<FaultOptions> faults;
    FaultCounters counters;  // without those of the options
    std::unique_ptr<FaultStream> stream;
    std::unique_ptr<Links> links;
    std::unique_ptr<KvState> state;
    std::unique_ptr<Member> member;
    std::unique_ptr<KvServer> server;
    std::uint64_t life = 0;
    bool paused = false, wiped = false;
    /// An end within a sync.
    struct End {
      bool power = false;
      unsigned passed = 0;  // syncs of several sectors before it
      bool has_come = false;
    };
    std::optional<End> end;
    bool ends_at_sync(std::uint64_t unsynced);
    bool has_failed = false, lost_power = false;  // of the life before
    Time clock = 1000;
    Time clock_from = 0, clock_base = 0;  // the clock showed clock_base at clock_from
    Time local(Time now) const { return clock_base + (now - clock_from) * clock / 1000; }
    Time global(Time local_time) const {
      return clock_from + ((local_time - clock_base) * 1000 + clock - 1) / clock;
    }
  };
  struct WorldLinks;
  void make_env(NodeId n);
  void set_stream(NodeId n, double io_errors);
  void open(NodeId n);
  void post(NodeId from, NodeId to, Bytes bytes, std::function<void(bool)> done);
  Time arrival(Node& from, std::pair<NodeId, NodeId> link);
  Time some_delay();
  void run_nodes();
  void run_clients();
  Time next_time() const;
  static const SimCpuCosts& costs();

  WorldOptions options_;
  Rng rng_;
  SimScheduler scheduler_;
  std::vector<std::string> trace_;
  BranchCounts branches_;
  Invariants invariants_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t next_event_ = 0;
  std::set<std::pair<NodeId, NodeId>> blocked_;
  std::map<std::pair<NodeId, NodeId>, int> cuts_;
  std::map<std::pair<NodeId, NodeId>, Time> late_until_;  // for links with a late message
  bool healed_ = false, held_back_ = false;
  std::map<std::pair<NodeId, NodeId>, std::vector<std::function<void()>>> held_;
  std::map<std::pair<NodeId, NodeId>, std::vector<Bytes>> recorded_;
  std::optional<NodeId> candidate_;
  Time now_ = kMillisecond;
  std::string why_;
  bool refused_ = false;
};

}  // namespace pyrdma::erpc::raft
