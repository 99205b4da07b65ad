// A group at one node: its views, one after the other, and the thread that runs the predicates.
//
//   group.cc    the application's calls
//   turn.cc     turns of the predicate thread, timers, sleep
//   heartbeat.cc  heartbeats, suspicions
//   change.cc   a view ends, the next one begins
//   connect.cc  joins, the connections of a new view, state for joiners
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "env/sync.h"
#include "systems/spindle/membership/control_channel.h"
#include "systems/spindle/options.h"
#include "systems/spindle/view.h"
#include "systems/spindle/whole_state.h"

namespace pyrdma::spindle {

/// Where a node stands.
enum class Standing : std::uint8_t {
  kOutside,   // in no view: neither found() nor join() has ended
  kMember,    // in a view, which may be changing
  kLeft,      // left by leave()
  kExcluded,  // the others go on without it, or it is in a minority that may not install a view
};
const char* to_string(Standing standing);

/// Upcalls of the application. The thread that makes turns calls them, one at a time, so they must
/// not call the group. One that takes long, or blocks, costs this member no place in the view, but
/// the others wait for what it receives. Those that are null are left out.
struct Upcalls {
  /// Messages of a subgroup, in its order. The bytes are valid until the call returns.
  std::function<void(std::uint32_t subgroup, std::span<const Message>)> deliver;
  /// A view begins. The messages of the last one have been delivered.
  std::function<void(const ViewShape&)> view;
  /// Returns the state that a joiner of the subgroup needs: the effect of all messages so far.
  /// Comes before `view` of the joiner's view.
  /// Nothing: this member keeps none, and the joiner asks another one.
  std::function<std::optional<Bytes>(std::uint32_t subgroup)> save;
  /// The state of a subgroup at the begin of this node's first view, if a member has one.
  std::function<void(std::uint32_t subgroup, ByteView state)> load;

  // Instead of save and load, for state that is too much for memory: it moves in parts. Nothing is
  // delivered meanwhile, so the state stays what it is, and is the same at all members that keep
  // it. If a member dies, the joiner goes on with another one.

  /// Returns what this joiner asks a member next; nothing once it has all of the state, so that a
  /// crash leaves it. `begins`: the first call since this node has joined.
  std::function<std::optional<Bytes>(std::uint32_t subgroup, bool begins)> ask_state;
  /// Returns what this member answers, at most ControlChannel::kMostPart bytes and 64 more.
  /// Nothing: it keeps no state.
  std::function<std::optional<Bytes>(std::uint32_t subgroup, ByteView request)> give_state;
  /// Takes an answer. False: it cannot be right, and the joiner asks another member.
  std::function<bool(std::uint32_t subgroup, ByteView answer)> take_state;

  /// All messages of the view up to its trim are delivered: make them durable.
  std::function<void()> persist;
  /// This member agrees to this view, before it enters it, a joiner when it has its state: make it
  /// durable that the view may exist. It runs when all members have agreed, so a restart from logs
  /// knows it from each of them.
  std::function<void(const ViewShape&)> accept;
  /// All members are connected in the view: messages can flow from now on.
  std::function<void(const ViewShape&)> run;
};

class Group {
 public:
  /// Throws Error(kInvalidArgument) for an option or a subgroup outside its bounds. All nodes give
  /// the same subgroups.
  Group(Env& env, const Options& options, std::vector<SubgroupSpec> subgroups, Upcalls upcalls,
        Bugs bugs = {});
  /// Ends without a word, as a crash does, unless leave() has ended.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Forms the first view with these nodes, which all call it. Throws Error(kTimeout), naming the
  /// nodes that did not come, after Options::join_timeout. The node is then excluded.
  void found(std::vector<NodeId> nodes, std::uint64_t view = 1);
  /// Joins a group that exists, through any of these nodes. Throws Error(kTimeout) after
  /// Options::join_timeout, and the node may try again; Error(kInvalidArgument) while this node is
  /// a member, and Error(kUnavailable) once an upcall or the device has ended the predicate thread
  /// by an error. A node that left or was excluded may join again.
  void join(std::vector<NodeId> contacts);
  /// Leaves in good order: the others deliver what this node has sent, also a batch that is not
  /// full. Blocks until then. Throws Error(kTimeout) after `timeout`.
  void leave(Time timeout = 10 * kSecond);

  Standing standing() const { return standing_.load(std::memory_order_acquire); }
  /// Why the node is excluded, with what to do.
  std::string why_excluded();
  /// The number of the view; 0: none. It may be changing.
  std::uint64_t view_id() const { return view_id_.load(std::memory_order_acquire); }
  std::vector<Member> members();
  /// Messages flow: all members of the view are connected, and it is not changing.
  bool is_settled();
  /// This node, at this start of it.
  Member self() const { return self_; }

  // Sending: one thread at a time per subgroup.

  /// Returns the message area of a free slot, to be filled in place; waits for one until
  /// `deadline`. Nothing: the deadline has passed. Throws Error(kInvalidArgument) if this node may
  /// not send in the subgroup, and Error(kUnavailable) once it is no member of a view.
  std::span<std::byte> reserve(std::uint32_t subgroup, Time deadline = kForever);
  /// Queues the reserved slot with a message of so many bytes, at most max_message. If the view
  /// changes first, the message is sent once, in the old or in the new view.
  void send(std::uint32_t subgroup, std::uint32_t bytes);
  /// Sends a copy of the message if a slot is free and none is reserved; the thread that makes
  /// turns may call it. Returns the message's number among those that this node has sent in the
  /// subgroup, from 1 on; 0 if it is not sent. A node that joins again may give a number again, to
  /// another message.
  std::uint64_t try_send(std::uint32_t subgroup, ByteView message);
  /// Whether all members have delivered an own message of that number, or nothing as long as it is
  /// under way. False: this node is no member any more, and nobody may have it. Messages of an
  /// unordered subgroup count as delivered when a view ends.
  std::optional<bool> is_delivered(std::uint32_t subgroup, std::uint64_t number);
  /// With Options::fixed_batch: what is queued leaves, though it is no full batch.
  void flush(std::uint32_t subgroup);
  /// Why reserve() waits: the member that lags, the share of its time that its upcalls take, and
  /// what to do.
  std::string describe_wait(std::uint32_t subgroup);

  /// Makes one turn of the predicates; returns whether anything happened. For groups without a
  /// predicate thread; with one it does nothing.
  bool turn();
  /// Waits until ready() or `deadline`; makes turns if the group has no thread. Returns ready().
  /// `only`: the one Watch whose notifications ready() waits for, besides turns.
  bool wait_until(FunctionRef<bool()> ready, Time deadline, Watch* only = nullptr);
  /// Lets time pass; makes turns if the group has no thread.
  void pause_until(Time until);

  // Measurement.

  /// Sums over the views of this node.
  struct Counters {
    std::vector<SubgroupCounters> subgroups;
    Time sender_wait = 0;  // in reserve(), of all threads
    Time upcalls = 0;      // with Options::timed
    std::uint64_t turns = 0, views = 0, requests = 0, doorbells = 0, sleeps = 0;
    std::uint64_t table_bytes = 0;  // registered memory of the present view
  };
  /// Returns the counters as of now. Waits for a turn of the predicate thread, up to a heartbeat.
  Counters counters();
  /// A row of the shared state table (section 2.2).
  struct TableRow {
    NodeId node = 0;
    bool is_sender = false;
    std::uint64_t sent = 0;  // rounds that the sender has given to messages and nulls
    // Messages and nulls of the order that the member has received, and delivered.
    std::uint64_t received = 0, delivered = 0;
  };
  /// Returns the rows of a subgroup's members, as far as their pushes have reached this node.
  /// Nothing in no view.
  std::vector<TableRow> table(std::uint32_t subgroup);
  Env& env() { return env_; }
  const Options& options() const { return options_; }
  ControlChannel& channel() { return channel_; }

 private:
  struct Reserved {
    View* view = nullptr;  // null: nothing is reserved
    std::span<std::byte> bytes;
  };
  /// Who may post to the connections of the views.
  enum class Poster : std::uint8_t {
    kTurns,   // the thread that makes turns
    kUpcall,  // nobody: that thread is in an upcall
    kBeats,   // the thread that beats meanwhile
  };
  struct Carried {
    std::uint32_t subgroup;
    Bytes message;
  };
  /// The lock for a scope.
  using Locked = std::lock_guard<Mutex>;

  // turn.cc
  void run();
  bool make_turn();
  bool run_predicates(bool skips_quiet);
  bool run_subgroup(std::uint32_t index);
  void wake_sender(std::uint32_t index);
  void run_timers();
  std::string describe_slowest(Rank rank);
  void doze();
  void ring_sleepers();
  void count();
  void call_deliver(std::uint32_t subgroup, std::span<const Message> messages);

  // heartbeat.cc
  void find_upcall_share(Time now);
  void beat();
  void beat_in(View& view);
  static void push_word(View& view, std::uint64_t offset);
  std::uint64_t beats_of(Rank peer) const;
  Time patience_with(Rank peer) const;
  void listen(Time now);
  void run_beats();
  void end_upcall();
  /// Calls what may take long and posts nothing: an upcall. Another thread beats meanwhile.
  template <class Call>
  void call_out(Call&& call) {
    poster_.store(Poster::kUpcall, std::memory_order_release);
    try {
      call();
    } catch (...) {
      end_upcall();
      throw;
    }
    end_upcall();
  }

  // change.cc
  bool change_view(bool is_urgent);
  bool take_rows();
  void tell_accepted();
  void push_control_row(const Rank* only = nullptr);
  void wedge();
  void install();
  void enter(std::unique_ptr<View> next);
  void start_running();
  void drop_old_views();
  void queue_carried();
  void exclude(const char* why);

  // connect.cc
  void serve_requests();
  void ask_to_join(Time now);
  void give_up();
  void say_hellos(Time now);
  Bytes hello_to(Rank peer) const;
  Bytes take_hello(NodeId from, ByteView request);
  bool take_answer(Rank peer, ByteView answer);
  void tell_last_row(Rank peer);
  void take_last_row(NodeId from, ByteView request);
  Bytes take_state_request(NodeId asker, ByteView request);
  void ask_for_state();
  bool is_source(std::uint32_t subgroup, Rank rank) const;
  bool is_without_state(std::uint32_t subgroup);
  void note_lost_state(const ViewShape& next);
  void save_whole_state();
  void send_state_request(std::uint32_t subgroup, ByteView asked);
  void take_state(std::uint32_t subgroup, ByteView answer);
  void begin_with_state();
  std::optional<Rank> rank_in(const std::vector<Member>& members) const;
  void enter_first(std::vector<Member> members, std::uint64_t id, Rank first_joiner);

  void start_threads();
  bool comes_in(FunctionRef<void()> is_late);
  void check_sender(std::uint32_t subgroup, const char* call);
  bool has_sent_all();
  bool has_own_thread() const { return options_.predicate_thread; }

  Env& env_;
  const Options options_;
  const std::vector<SubgroupSpec> specs_;
  Upcalls upcalls_;
  const Bugs bugs_;
  Member self_;
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  ControlChannel channel_;

  /// Guards what the application and the predicate thread share (section 3.4): the present view and
  /// the state of its senders.
  Mutex lock_;
  Watch space_;  // notified when slots may be free, the view has changed, or counters are ready
  std::unique_ptr<View> view_;
  std::vector<std::unique_ptr<View>> old_views_;  // until the new one runs and nothing is reserved
  std::vector<Reserved> reserved_;                // by subgroup
  std::vector<Carried> carried_;                  // messages that the next view sends again
  // By subgroup: own messages that the views before have delivered, and that all members have.
  std::vector<std::uint64_t> sent_before_, delivered_;
  std::atomic<Standing> standing_{Standing::kOutside};
  std::atomic<std::uint64_t> view_id_{0};
  std::vector<std::atomic<bool>> is_waiting_;  // in reserve(), by subgroup
  std::string why_excluded_;
  Counters past_;     // of views that have ended, and of this node; the predicate thread's
  Counters counted_;  // the answer to counters()
  std::atomic<Time> sender_wait_{0};
  std::atomic<bool> wants_counters_{false}, is_running_{false}, has_carried_{false};

  // The predicate thread.
  std::atomic<bool> is_stopping_{false}, is_leaving_{false}, has_news_{false}, has_failed_{false};
  std::atomic<bool> is_turning_{false}, gives_up_{false};
  std::vector<NodeId> contacts_;  // while joining
  bool state_under_way_ = false;
  bool has_state_ = true;                    // a joiner without state delivers nothing
  std::unique_ptr<WholeState> whole_state_;  // with Upcalls::load
  struct Coming {
    Rank source = 0;      // the member that is asked
    RankSet without = 0;  // members that keep no state, or have none yet
    Rank stateless = 0;   // so many have none yet
    bool is_wrong = false, is_whole = false;
  };
  std::vector<Coming> coming_;         // by subgroup: of this joiner, in this view
  std::vector<bool> may_be_lost_;      // by subgroup: its state, since this node has joined
  std::vector<bool> has_asked_state_;  // by subgroup: since it has joined
  Time next_beat_ = 0, next_hello_ = 0, next_join_ = 0, last_event_ = 0, listened_ = 0;
  std::uint64_t turn_number_ = 0;
  // Every so many upcalls one is timed. The heartbeat tells the others the share of all.
  static constexpr std::uint32_t kUpcallsPerSample = 16;
  std::uint32_t upcall_number_ = 0, upcall_percent_ = 0, sampled_from_ = 0;
  Time sampled_upcalls_ = 0, sampled_since_ = 0;
  std::atomic<bool> is_asleep_{false};
  std::vector<std::uint32_t> quiet_;  // turns since the last event, by subgroup
  std::atomic<Poster> poster_{Poster::kTurns};
  std::unique_ptr<Thread> thread_, beats_;  // last: they end first
};

}  // namespace pyrdma::spindle
