// LibraftMember carries a Member by libraft 0.15: the raft_io and raft_fsm that the library calls,
// and the queues between the library and the turn.
//
// The library calls back only inside turn(), inside requests and inside stop(). Callbacks never
// throw, because C frames are between them and the turn: they only put work into queues, and the
// turn does it. Memory that the library frees comes from its own allocator.
#pragma once
#include "systems/erpc/raft/libraft/library.h"

#ifdef PYRDMA_LIBRAFT

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "systems/erpc/raft/member.h"
#include "systems/erpc/raft/observer.h"
#include "systems/erpc/raft/stable_store.h"

namespace pyrdma::erpc::raft {

class LibraftMember final : public Member {
 public:
  LibraftMember(Env& env, Links& links, StateMachine& state, const MemberOptions& options);
  ~LibraftMember() override;

  void receive(NodeId from, std::span<const std::byte> message) override;
  void turn(Time now) override;
  Time next_turn() const override;

  Outcome propose(ByteView command, std::function<void(Outcome, const KvAnswer&)> done) override;
  Outcome barrier(std::function<void(Outcome)> done) override;
  Outcome add(NodeId node, std::function<void(Outcome)> done) override;
  Outcome assign(NodeId node, Role role, std::function<void(Outcome)> done) override;
  Outcome remove(NodeId node, std::function<void(Outcome)> done) override;
  Outcome transfer(NodeId node, std::function<void(Outcome)> done) override;

  bool leads() const override { return running() && lib_.state(raft()) == RAFT_LEADER; }
  std::optional<NodeId> leader() const override;
  bool heard_majority() const override;
  std::uint64_t term() const override { return raft_.current_term; }
  std::uint64_t vote() const override { return raft_.voted_for; }
  std::uint64_t last_index() const override { return lib_.last_index(raft()); }
  std::uint64_t first_index() const override { return raft_.log.offset + 1; }
  std::uint64_t commit_index() const override { return raft_.commit_index; }
  std::uint64_t applied_index() const override { return lib_.last_applied(raft()); }
  Servers servers() const override { return servers_of(raft_.configuration); }
  const MemberCounters& counters() const override { return counters_; }
  const std::string& failure() const override { return failure_; }

 private:
  /// A request to the library, with the owner's callback. One of the structures is in use.
  struct Request {
    LibraftMember* member = nullptr;
    struct raft_apply apply {};
    struct raft_barrier barrier {};
    struct raft_change change {};
    struct raft_transfer transfer {};
    std::function<void(Outcome, const KvAnswer&)> done;
    Outcome outcome = Outcome::kUnknown;
    KvAnswer answer;
  };
  /// Work on the store, in order.
  struct Work {
    enum class Kind : std::uint8_t { kAppend, kTruncate, kSnapshot };
    explicit Work(Kind what) : kind(what) {}
    Kind kind;
    struct raft_io_append* append = nullptr;
    raft_io_append_cb append_done = nullptr;
    const struct raft_entry* entries = nullptr;  // the library keeps them until append_done
    unsigned count = 0;
    std::uint64_t from = 0;  // of a truncation
    struct raft_io_snapshot_put* put = nullptr;
    raft_io_snapshot_put_cb put_done = nullptr;
    StoredSnapshot snapshot;
    unsigned trailing = 0;
  };
  struct Outgoing {
    NodeId to = 0;
    Bytes bytes;
    struct raft_io_send* request = nullptr;
    raft_io_send_cb done = nullptr;   // null for the message that hands the lead over
    std::uint64_t snapshot_term = 0;  // of the leader that sends a snapshot; else 0
    /// Requests for a snapshot that end with this one.
    std::vector<std::pair<struct raft_io_send*, raft_io_send_cb>> joined = {};
    void report(int status) const {
      if (done != nullptr) done(request, status);
      for (const auto& [other, other_done] : joined) other_done(other, status);
    }
  };
  struct Get {
    struct raft_io_snapshot_get* request = nullptr;
    raft_io_snapshot_get_cb done = nullptr;
  };
  /// Links may report after the end of the member.
  using Reports = std::vector<std::pair<std::uint64_t, bool>>;

  // libraft_member.cc
  static LibraftMember& of(struct raft_io* io) { return *static_cast<LibraftMember*>(io->impl); }
  static LibraftMember& of(struct raft_fsm* fsm) { return *static_cast<LibraftMember*>(fsm->data); }
  struct ::raft* raft() const {
    return const_cast<struct ::raft*>(&raft_);
  }
  bool running() const { return failure_.empty() && started_; }
  std::uint64_t self() const { return std::uint64_t{env_.node()} + 1; }
  unsigned units(Time time) const;
  void check_options() const;
  void begin_group();
  void start();
  void stop() noexcept;
  void fail(std::string why);
  void watch();
  void watch_role();
  void take_new_term();
  bool majority(const std::function<bool(std::uint64_t id)>& agrees) const;

  // io.cc: what the library asks for
  void fill_io();
  int load(raft_term* term, raft_id* vote, struct raft_snapshot** snapshot, raft_index* start_index,
           struct raft_entry** entries, size_t* count) noexcept;
  int send(struct raft_io_send* request, const struct raft_message& m, raft_io_send_cb done);
  bool joins_transfer(const Outgoing& out);
  void append(struct raft_io_append* request, const struct raft_entry* entries, unsigned count,
              raft_io_append_cb done);
  void truncate(std::uint64_t from);
  void put_snapshot(unsigned trailing, struct raft_io_snapshot_put* request,
                    const struct raft_snapshot& snapshot, raft_io_snapshot_put_cb done);
  struct raft_snapshot* make_snapshot(const StoredSnapshot& stored, bool with_data) const;
  int apply(const struct raft_buffer& command);
  int take_snapshot(struct raft_buffer** buffers, unsigned* count);

  // messages.cc: between the structures of the library and the wire
  Servers servers_of(const struct raft_configuration& configuration) const;
  void fill_servers(struct raft_configuration& configuration, const Servers& servers) const;
  Bytes encode_message(const struct raft_message& m);
  void pass_on(NodeId from, Message& message);
  void vote(struct raft_message& request);

  // admission.cc: what the library sees
  std::uint64_t term_of(std::uint64_t index) const;
  bool contradicts(std::uint64_t index, std::uint64_t term) const;
  bool may_append(const AppendEntries& m) const;
  bool may_vote(const VoteResult& m) const;
  bool may_ask(NodeId from, const RequestVote& m) const;
  bool may_acknowledge(const AppendResult& m) const;
  bool may_come(NodeId from, const Message& message) const;
  void rebase(AppendEntries& m) const;
  void note(NodeId from, const Message& message);
  void deliver(NodeId from, ByteView bytes);

  // configuration.cc
  struct Configuration {
    std::uint64_t index = 0;  // of its entry
    Servers servers;
  };
  const struct raft_entry* entry_of(std::uint64_t index) const;
  /// Returns the last configuration among the entries up to `index`.
  Configuration configuration_at(std::uint64_t index) const;
  void forget_uncommitted(const AppendEntries& m);
  void read_configuration();
  struct raft_server* own_server();
  void settle();
  bool may_change() const;

  // turn.cc
  bool flush();
  void speak();
  bool run_work();
  bool store_work(Work& work);
  void finish_sends();
  void begin_term();
  void run_callbacks();

  // requests.cc
  static void change_ended(struct raft_change* change, int status);
  Outcome accept(std::unique_ptr<Request>& request, int status);
  void finish(Request* request, int status);
  std::unique_ptr<Request> make_request(std::function<void(Outcome)> done);

  Env& env_;
  Links& links_;
  StateMachine& state_;
  const MemberOptions options_;
  Library lib_;
  Rng random_;
  StableStore store_;
  std::vector<StoredEntry> loaded_;  // until the library has them
  struct ::raft raft_ {};
  struct raft_io io_ {};
  struct raft_fsm fsm_ {};
  raft_io_tick_cb tick_ = nullptr;
  raft_io_recv_cb recv_ = nullptr;
  raft_io_close_cb io_closed_ = nullptr;
  Time now_ = 0, next_tick_ = 0;
  bool initialized_ = false, started_ = false, closing_ = false;
  std::string address_;

  std::vector<std::pair<NodeId, Bytes>> inbox_;
  std::vector<Outgoing> outbox_;
  std::map<std::uint64_t, Outgoing> in_flight_;  // by number; without the bytes
  std::uint64_t next_send_ = 0;
  std::shared_ptr<Reports> reports_ = std::make_shared<Reports>();
  std::vector<Work> work_, current_;  // current_: begun, not yet reported to the library
  std::vector<Get> gets_;
  std::vector<std::unique_ptr<Request>> finished_;
  bool state_dirty_ = false;
  bool log_cut_ = false;             // since the last settle()
  bool configuration_moved_ = true;  // the log may hold another one than the library
  std::uint64_t term_to_store_ = 0, vote_to_store_ = 0;
  bool unsynced_ = false;  // a deliberate bug has put the sync off

  // What the seam knows of the leader: entries up to `compared_` match the leader of this term.
  std::uint64_t compared_term_ = 0, compared_ = 0;
  std::map<std::uint64_t, Time> heard_;  // by server: its last answer
  std::uint64_t barrier_term_ = 0;       // in which it has appended a barrier

  KvAnswer result_;  // of the command that was applied last
  bool led_ = false;
  std::uint64_t led_term_ = 0, seen_commit_ = 0;
  MemberCounters counters_;
  std::string failure_;
};

}  // namespace pyrdma::erpc::raft

#endif
