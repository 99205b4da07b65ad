// The service of a node: the paper's kernel module (section 3.2). It owns the device's queue pairs;
// applications use virtual ones. The functions here are the kernel's; `App` is an application's
// door to them.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "env/sync.h"
#include "systems/krcore/baselines/metadata_rpc.h"
#include "systems/krcore/control/control_port.h"
#include "systems/krcore/control/failure.h"
#include "systems/krcore/control/handshakes.h"
#include "systems/krcore/control/peers.h"
#include "systems/krcore/memory/lease.h"
#include "systems/krcore/memory/mr_store.h"
#include "systems/krcore/memory/regions.h"
#include "systems/krcore/meta/meta_client.h"
#include "systems/krcore/meta/meta_server.h"
#include "systems/krcore/pool/core_pool.h"
#include "systems/krcore/service_types.h"
#include "systems/krcore/vqp/vqp.h"

namespace pyrdma::krcore {

/// A service whose background thread has ended with an error cannot go on. Then each call that
/// creates, connects, posts or polls throws this error.
class Service {
 public:
  /// Boots the node's service, and returns when all nodes have one. Control path.
  Service(Env& env, const Options& options);
  /// Ends the threads. No application may use the service any more. Peers find this node dead.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  Env& env() { return env_; }
  const Options& options() const { return options_; }
  Regions& regions() { return *regions_; }
  Counters& counters() { return counters_; }
  /// Of a virtual queue pair, in bytes.
  std::uint32_t max_inline() const { return max_inline_; }
  std::uint64_t next_number() { return next_number_.fetch_add(1, std::memory_order_relaxed); }

  // Control path (algorithm 1). Costs no network, unless connect() misses the caches.
  VqpId create(const VqpOptions& options);
  /// Ends the queue pair; what is under way of it completes for nobody.
  void destroy(VqpId id);
  /// Queue pairs of an application, with those that answer its senders.
  std::uint32_t queues_of(std::uint64_t app);
  /// Connects to whoever binds `port` of `node`, or with `peer` to one queue pair there.
  ConnectResult connect(VqpId id, NodeId node, std::uint32_t port, VqpId peer = {},
                        std::uint16_t peer_epoch = 0);
  /// Ends the connection of a queue pair that nobody has used. Its posted receives stay.
  void disconnect(VqpId id);
  /// Returns false when another queue pair has the port.
  bool bind(VqpId id, std::uint32_t port);
  void unbind(VqpId id);
  /// Frees the queue pairs of an application. Its regions are the caller's to remove.
  void end_app(std::uint64_t app);

  // Data path (algorithm 2). One thread at a time uses a queue pair for each direction.
  PushResult push(VqpId id, std::span<const fabric::WorkRequest> list);
  /// Polls the physical queue pair and takes completions of this queue pair, in order.
  std::size_t poll(VqpId id, std::span<fabric::Completion> out);
  /// Polls until `out` is full or `deadline` has passed; returns how many completions it took.
  std::size_t wait(VqpId id, std::span<fabric::Completion> out, Time deadline);
  /// Polls each completion queue behind these queue pairs once; returns how many those are.
  std::size_t poll_physical(std::span<const VqpId> ids);
  /// Takes completions that are ready, without a poll.
  std::size_t take(VqpId id, std::span<fabric::Completion> out);
  fabric::PostResult post_receive(VqpId id, std::span<const fabric::ReceiveRequest> requests);
  /// Takes messages; with `with_replies` makes or finds a queue pair to each sender.
  std::size_t pop_messages(VqpId id, std::span<Message> out, bool with_replies = true);
  /// Moves the queue pair into the error state; what is under way of it ends as kFlushed.
  void fail(VqpId id);
  bool end_with(VqpId id, const fabric::WorkRequest& bad, fabric::Status status);
  void reset(VqpId id);
  std::size_t flush_receives(VqpId id, std::span<fabric::Completion> out);
  VqpState state(VqpId id);
  std::uint16_t epoch(VqpId id);
  /// Why the peer took no message of a queue pair that has failed; kSuccess: another reason.
  fabric::Status refusal(VqpId id);
  Vqp* find(VqpId id);

  /// Moves a queue pair to the pool of another core, or anew to the best physical queue pair of its
  /// own (section 4.6). It goes on in the background.
  void start_transfer(VqpId id, std::uint32_t core);
  /// Makes a reliable connection for this core and the node, in the background.
  void want_reliable(std::uint32_t core, NodeId node);
  /// From now on, makes reliable connections to nodes with so many requests in a sample.
  void sample_peers(std::uint32_t frequent_requests);
  /// Forgets cached metadata and regions, as before a measurement (section 5.1).
  void clear_caches();
  void forget_regions();
  /// Makes a reliable connection of a core beside those that there are, and waits for it.
  void make_one_more(std::uint32_t core, NodeId node);
  /// READs at meta servers so far.
  std::uint64_t meta_reads();
  /// Requests to a meta server's thread so far, and how many of them were repeated.
  std::uint64_t metadata_requests();
  std::uint64_t metadata_repeated();
  bool uses_reliable(VqpId id);
  std::uint64_t physical_queue_pairs();
  CorePool& pool(std::uint32_t core) { return *pools_[core % pools_.size()]; }
  std::uint32_t pools() const { return static_cast<std::uint32_t>(pools_.size()); }
  /// How a test ends a physical queue pair: it goes to the error state, always or if it carries
  /// requests; or a peer refuses a request of nobody, which fails no other end of a dynamic one.
  enum class Break : std::uint8_t { kAlways, kUnderRequests, kRefused };
  /// Ends that of a queue pair, if it has one. Returns whether it has.
  bool break_physical(VqpId id, Break how = Break::kAlways);

 private:
  struct SendLock;
  struct CoreState;

  // vqp/connect.cc
  ConnectResult resolve(NodeId node, DctMeta& meta);
  bool has_cached(NodeId node, DctMeta& meta);
  bool take_cached(NodeId node, DctMeta& meta);
  bool place_at_once(CorePool& pool, Vqp& v);
  void place_dynamic(CorePool& pool, Vqp& v, const Destination& to);
  ConnectResult place(Vqp& v);
  ConnectResult place_after_asking(Vqp& v, NodeId node);
  bool has_place(Vqp& v);
  CorePool& local_pool() { return pool(env_.core()); }
  void adopt(Vqp& v, PhysicalQp* qp);
  void leave(Vqp& v);
  void abandon(Vqp& v);
  void note_placement(Vqp& v);
  Vqp* take_place(const VqpOptions& options);

  // vqp/check.cc
  fabric::Status check(Vqp& v, const fabric::WorkRequest& request, Time now, Checked& out);
  /// What a usual request must name.
  struct Usual {
    RegionRecord region;
    std::uint32_t key = 0;  // the region's virtual one
    std::uint64_t domain = 0;
    bool is_known = false;
  };
  Usual usual(const Vqp& v, Time now) const;
  bool is_usual(const Usual& usual, const fabric::WorkRequest& request, Checked& out) const;
  bool knows_region(const Vqp& v, Time now) const {
    return v.region.is_valid(v.node, v.epoch, now, forgotten_.load(std::memory_order_acquire));
  }
  fabric::Status check_one_sided(Vqp& v, const fabric::WorkRequest& request, Time now,
                                 Checked& out);
  fabric::Status check_message(const fabric::WorkRequest& request, Checked& out);
  /// Finds the region of a remote key in the core's MRStore, else in the node's ValidMR table.
  fabric::Status find_region(Vqp& v, std::uint32_t key, Time now, KnownRegion& region);

  // vqp/push.cc
  PushResult check_list(Vqp& v, Time now, std::span<const fabric::WorkRequest> list,
                        std::size_t& count);
  void post_piece(CorePool& pool, Vqp& v, std::span<const Checked> piece, std::uint64_t entry,
                  std::uint64_t order);
  bool has_rows(CorePool& pool, Vqp& v, std::size_t count);
  void fill(CorePool& pool, const Vqp& v, const Checked& from, std::uint64_t entry,
            std::uint64_t order, Prepared& out) const;
  void fill_message(CorePool& pool, const Vqp& v, const Checked& from, Prepared& out) const;
  /// Posts the newest requests of the queue pair's physical one. Those that the device does not
  /// take wait in `pending`.
  void post(CorePool& pool, Vqp& v, std::size_t count);
  /// Posts the newest requests of `qp`. The caller takes back those that are not accepted.
  std::uint32_t post_newest(CorePool& pool, PhysicalQp& qp, std::size_t count);
  /// Posts requests of the service; returns how many are accepted.
  std::uint32_t post_physical(CorePool& pool, PhysicalQp& qp, std::span<const Prepared> list);
  static void keep_payload(Prepared& request);

  // vqp/held.cc
  void hold(CorePool& pool, Vqp& v, const Prepared& request);
  void flush_pending(CorePool& pool, Vqp& v);
  /// Nothing: the remote region must be looked up again.
  std::optional<fabric::Status> check_held(CorePool& pool, const Vqp& v, Prepared& held);
  bool has_buffers(const Prepared& request, std::uint64_t domain, std::uint32_t first,
                   std::uint32_t pieces) const;
  void refuse_held(Vqp& v, fabric::Status status);
  void serve_held(VqpId id, Vqp& v);
  void fail_unplaced(NodeId node);
  void look_up_held(Vqp& v);
  void want_turn(CorePool& pool, Vqp& v);
  void want_answer(CorePool& pool, Vqp& v);

  // vqp/poll_inner.cc
  void poll_inner(CorePool& pool, PhysicalQp& qp);
  void note_overrun(const fabric::CompletionQueue& queue, const char* owner);
  bool poll_for(Vqp& v, std::vector<const fabric::CompletionQueue*>& polled);
  Watch* arrivals_of(VqpId id);
  Vqp* owner_of(const Prepared& request, VqpId id);
  void succeed(CorePool& pool, PhysicalQp& qp, const fabric::Completion& wc);
  std::uint32_t end_silent(PhysicalQp& qp, Vqp& v, std::uint32_t most);
  void fail_request(CorePool& pool, PhysicalQp& qp, const fabric::Completion& wc);
  Vqp* fail_oldest(PhysicalQp& qp, const fabric::Completion& wc, Vqp* v);
  void flush_oldest(CorePool& pool, PhysicalQp& qp, Vqp* v);
  void finish(Prepared& request, fabric::Status status, Vqp* v);
  void complete(Vqp& v, std::uint64_t entry, fabric::Status status);
  void await_read(Vqp& v, const Prepared& announcement);
  void tell_owner(Vqp& v);
  /// Completes the zero-copy send with that ticket, if there is one.
  void complete_ticket(Vqp& v, std::uint64_t ticket, fabric::Status status);
  void fail_vqp(Vqp& v);
  std::size_t take_ready(Vqp& v, std::span<fabric::Completion> out);
  void progress(CorePool& pool);
  void has_drained(CorePool& pool, PhysicalQp& qp);

  // vqp/messages.cc
  void dispatch(CorePool& pool) { dispatch_all(pool, 1); }
  bool dispatch_all(CorePool& pool, std::uint32_t rounds = ~0U);
  void take_batches(CorePool& pool, std::uint32_t rounds);
  void take_repeated(CorePool& from, std::span<const MessageHeader> headers);
  void take_message(CorePool& pool, const MessageHeader& header, const std::byte* payload);
  /// Returns the queue pair to which a header sends its message, or null.
  Vqp* named_by(const MessageHeader& header);
  /// Tells whether a message is for a connection that a reset of the queue pair has ended.
  static bool is_for_earlier(const Vqp& v, const MessageHeader& header);
  /// Tells whether a message names the node and the life to which the queue pair is connected. The
  /// caller holds the lock of its pool.
  static bool is_from_peer(const Vqp& v, const MessageHeader& header);
  void deliver(CorePool& pool, Vqp& v, const MessageHeader& header, const std::byte* payload);
  void refuse(CorePool& pool, const MessageHeader& header, fabric::Status status);
  /// What becomes of a request of the service. The callers hold the lock of the pool.
  enum class Sent : std::uint8_t { kNow, kLater, kNever };
  Sent send(CorePool& pool, Prepared& request);
  /// Returns what carries a request to a life of a node, or null. `may_come` says whether something
  /// may carry it later.
  PhysicalQp* way_to(CorePool& pool, NodeId node, const Destination& to, bool& may_come);
  bool is_making(CorePool& pool, NodeId node);
  void make_place(CorePool& pool, const Prepared& request);
  void send_service_message(CorePool& pool, NodeId node, const DctMeta& meta,
                            const MessageHeader& header);
  void send_deferred(CorePool& pool);
  void put_into(const Vqp& v, InboxItem& item, const std::byte* payload, PostedReceive&& receive);
  bool has_buffers(const Vqp& v, const PostedReceive& receive) const;
  void refuse_untaken(const Vqp& v, InboxItem& item);
  void match(Vqp& v);
  bool has_ready(Vqp& v);
  void lose_messages_of(Vqp& v, const Sender& sender);
  bool fetch(Vqp& v, InboxItem& item);
  void read_payload(Vqp& v, InboxItem& item);
  void announce_again(Vqp& v, InboxItem& item, const MessageHeader& header);
  void look_at_fetch(InboxItem& item) const;
  std::optional<InboxItem::State> end_without_read(const Prepared& fetch);
  bool is_known(Vqp& v, const MessageHeader& header);
  static bool can_note(const Vqp& v, const MessageHeader& header);
  void note_taken(Vqp& v, const InboxItem& item);
  MessageHeader done_of(const MessageHeader& announced, CorePool& pool) const;
  void poll_all(CorePool& pool, NodeId node);
  static bool is_refused(const Vqp& v, const Sender& sender);

  // vqp/replies.cc
  VqpId reply_to(Vqp& bound, const MessageHeader& header);
  bool reclaim_replies(Vqp& bound);
  bool reclaim_of_others(const Vqp& bound);
  bool is_idle(Vqp::Reply& reply, std::uint64_t now);

  MessageHeader header_of(const Vqp& v, MessageKind kind, CorePool& pool) const;
  /// Fills in the two ends of a message's connection.
  void address(const Vqp& v, CorePool& pool, MessageHeader& header) const;

  // vqp/transfer.cc
  void begin_transfer(CorePool& pool, Vqp& v);
  void go_another_way(Vqp& v, bool is_another);
  void ask_by_another_way(CorePool& pool, Vqp& v);
  void await_placement(CorePool& pool, Vqp& v);
  void end_transfer(CorePool& pool, Vqp& v);
  void on_transfer(CorePool& pool, const MessageHeader& header);
  bool ask_again(CorePool& pool);
  Prepared transfer_message(Vqp& v, MessageKind kind);
  void want_transfer(Vqp& v, CorePool& to, std::optional<DctMeta> meta, bool is_answer);

  // memory/valid_mr.cc
  /// A connection of a queue pair, which another thread may reset meanwhile.
  struct Connection {
    NodeId node = fabric::kNoNode;
    std::uint16_t epoch = 0;
    std::optional<std::uint32_t> life;  // of the node, once it is known
  };
  static Connection connection_of(Vqp& v);
  bool has_way(Vqp& v, Connection& of);
  bool location_of(const Connection& of, ValidMrRecord& record);
  LookupResult look_up_region(Vqp& v, const Connection& of, std::uint32_t key,
                              RegionRecord& record);
  struct Look;
  bool has_begun(Vqp& v, std::uint16_t epoch, const fabric::WorkRequest& request, Look& look);
  bool read_for(Vqp& v, const Connection& of, const fabric::RemoteRegion& from,
                std::uint64_t offset, std::span<std::byte> into);

  // control/background.cc
  void boot();
  void run_control();
  std::optional<ControlMessage> next_control();
  bool look_after(CorePool& pool);
  void let_pollers_look();
  void run_builder();
  void end_what_has_ended();
  void take_control(const ControlMessage& message);
  void answer(const ControlMessage& to, ControlMessage message);
  void send_if_due(Inquiry& inquiry);
  bool ask(NodeId node, ControlMessage request, ControlMessage& reply, Time timeout,
           bool is_builder = false);
  std::optional<Job> next_job();
  void connect_meta_servers();
  void serve_metadata();
  void use_metadata_server();
  void register_at_meta_servers(Time timeout, bool is_builder);
  void ask_for_registrations();
  void sample();
  enum class Made : std::uint8_t { kConnection, kNoAnswer, kNoRoom };
  void begin_making(const Job& job);
  bool can_advance_makings();
  void advance_makings();
  /// Returns how the making has ended, if it has.
  std::optional<Made> advance(Making& making);
  std::optional<Made> offer_reliable(Making& making);
  void confirm_reliable(Making& making, const ControlMessage& accepted);
  void begin(std::unique_ptr<Inquiry>& inquiry, NodeId node, ControlMessage message, Time patience);
  Made join_own_ends(CorePool& own, std::unique_ptr<PhysicalQp> one);
  void accept_reliable(const ControlMessage& offer);
  void accept_offer(const ControlMessage& offer);
  void refuse_given_up(NodeId node, CorePool& own);
  bool has_confirmed(const ControlMessage& offer);
  void forget_earlier_lives(CorePool& pool);
  void accept_meta(const ControlMessage& offer);
  std::size_t held(CorePool& pool);
  bool make_room(CorePool& pool);
  void run_job(const Job& job);
  void revive(CorePool& pool, std::uint32_t number);
  bool connect_meta(MetaClient& client, NodeId server, Time timeout, bool is_builder);
  void reconnect_meta_servers();
  void move_users(CorePool& pool, NodeId node);
  ControlMessage own_metadata(ControlKind kind) const;

  // control/leaving.cc
  void peer_leaves(const ControlMessage& offer);
  void leave_earlier_lives(CorePool& pool);
  void vacate(CorePool& pool, PhysicalQp& qp);
  void end_left();
  void send_farewells();
  void forget_farewells(NodeId peer, std::uint32_t number);
  void end(CorePool& pool, std::unique_ptr<PhysicalQp> qp);
  void destroy_ended(CorePool& pool);

  Env& env_;
  Options options_;
  const Lease lease_{options_};
  std::atomic<bool> samples_{false};
  std::uint64_t max_message_ = 0;  // bytes
  std::uint32_t max_inline_ = 0;   // bytes, beside the header of a message
  std::atomic<bool> stops_{false}, has_booted_{false};
  std::atomic<std::uint64_t> next_number_{1};
  std::atomic<std::uint64_t> forgotten_{0};  // see KnownRegion
  Counters counters_;
  Failure failure_;  // of a background thread
  /// Nothing comes from the background threads any more.
  bool has_ended() const { return stops_.load(std::memory_order_acquire) || failure_.has_failed(); }

  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::unique_ptr<Regions> regions_;
  std::unique_ptr<MetaServer> meta_server_;
  Mutex meta_server_mutex_;
  std::unique_ptr<MetadataServer> metadata_server_;  // with Metadata::kRpc
  std::vector<std::unique_ptr<CorePool>> pools_;
  std::vector<std::unique_ptr<CoreState>> core_states_;

  // Virtual queue pairs. A place keeps its Vqp for ever, so a stale number never leads to freed
  // memory.
  Mutex table_mutex_;
  std::vector<std::atomic<Vqp*>> table_;
  std::vector<std::unique_ptr<Vqp>> vqps_;
  std::deque<std::uint16_t> free_places_;  // that have been used, the longest free one first
  std::uint32_t used_places_ = 0;          // the others have never been used
  std::map<std::uint64_t, std::uint32_t> app_queues_;  // queue pairs of each application
  std::vector<std::atomic<std::uint32_t>> ports_;

  // DCCache, and how to reach each node.
  Mutex cache_mutex_;
  struct Cached {
    DctMeta meta;
    ValidMrRecord location;
    bool has_meta = false, has_location = false, is_asked = false;
  };
  std::vector<Cached> cache_;
  Watch cache_watch_;
  std::unique_ptr<Peers> peers_;

  // Control path in the background.
  std::unique_ptr<ControlPort> port_;
  Mutex port_mutex_;
  Inquiries inquiries_;
  Mutex jobs_mutex_;
  std::deque<Job> jobs_;
  std::set<std::pair<std::uint32_t, NodeId>> wanted_;  // reliable connections that are being made
  /// Attempts to make a reliable connection to a node.
  struct Attempts {
    std::atomic<std::uint32_t> ended{0};
    std::atomic<Made> last{Made::kConnection};
  };
  std::vector<Attempts> attempts_;
  Watch jobs_watch_;
  void add_job(Job job);
  // The builder's.
  std::vector<std::unique_ptr<MetaEnd>> meta_ends_;  // of a meta server
  std::deque<AcceptedOffer> accepted_;
  std::vector<std::unique_ptr<Making>> makings_;
  std::vector<std::unique_ptr<Inquiry>> farewells_;  // at the ends of reliable connections

  std::vector<std::uint8_t> is_registered_;  // at each of Options::meta_servers

  std::vector<std::unique_ptr<Thread>> threads_;
};

/// What a core has beside its pool.
struct Service::CoreState {
  CoreState(Env& env, fabric::ProtectionDomain& domain, const Options& options);
  MetaClient meta;
  std::unique_ptr<MetadataClient> metadata;  // with Metadata::kRpc
  Mutex store_mutex;
  MrStore store;
  // Places into which the service's own READs go; guarded by the pool's lock.
  std::unique_ptr<fabric::MemoryRegion> scratch;
  std::vector<LookupRead> lookups;  // of each place
  std::vector<VqpId> waiting;       // have pending posts; guarded by the pool's lock
  std::vector<VqpId> asking;        // wait for an answer of their peer; likewise
};

/// Holds the lock of the pool that a queue pair uses, which may change until it is held.
struct Service::SendLock {
  explicit SendLock(Vqp& v);
  ~SendLock() { unlock(); }
  SendLock(const SendLock&) = delete;
  SendLock& operator=(const SendLock&) = delete;
  void unlock() {
    if (pool != nullptr) pool->mutex.unlock();
    pool = nullptr;
  }
  CorePool* pool;
};

}  // namespace pyrdma::krcore
