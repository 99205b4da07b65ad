// A node of the LOCO scenario: its endpoints of the channels, and the operations of its clients on
// them.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "systems/loco/atomic_var.h"
#include "systems/loco/barrier.h"
#include "systems/loco/fuzz/plan.h"
#include "systems/loco/fuzz/world.h"
#include "systems/loco/kvstore/store.h"
#include "systems/loco/ring_buffer.h"
#include "systems/loco/shared_queue.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco::scenario {

/// A value of several cache lines: the first word and the writer determine all words.
struct Wide {
  std::array<std::uint64_t, 28> words{};
};
Wide wide(NodeId writer, std::uint64_t number);

/// Message `number` of a ring: length and bytes depend on the number.
std::vector<std::byte> message(std::uint32_t ring, std::uint64_t number);

class Node {
 public:
  Node(World& world, Env& env);
  /// Carries out all plans. Throws Error when an operation has failed.
  void run();
  /// Ends the node's part of a run without dead nodes.
  void leave();
  /// Goes on with what clients have dropped, until ready().
  void go_on_until(FunctionRef<bool()> ready);
  // after_crash.cc: a node has died.
  /// Gives back the locks whose holders have ended with an error, and waits until everything that
  /// this node has sent to living nodes is there.
  void settle();
  /// Tests what does not need the dead node, once all living nodes have settled.
  void look_around();

 private:
  void run_epoch(std::uint32_t epoch, std::uint32_t caller);
  void meet(std::uint64_t epoch);
  void make_again(std::uint64_t epoch);
  // finish.cc: everything has arrived, and nothing is lost
  void finish();
  void finish_variables(Caller& me);
  void finish_rings(Caller& me);
  void check_rings();
  void finish_queue(Caller& me);
  void finish_locks(Caller& me);
  void finish_store();
  void check_indices();
  // after_crash.cc
  void look_at_variables(Caller& me);
  void look_at_words(Caller& me);
  void drain_rings(Caller& me);
  void drain_queue(Caller& me);
  void take_locks(Caller& me);
  void read_keys(Caller& me);
  bool is_here(NodeId node) const;
  bool attempt(FunctionRef<void()> part);
  bool is_member() const { return queue_ != nullptr; }
  void act(Caller& me, const Planned& op);
  void push(Caller& me);
  void store_often(const Planned& op);
  void look(Caller& me, NodeId owner, bool pull);
  void add(Caller& me, const Planned& op);
  void enqueue(Caller& me, const Planned& op);
  void dequeue(Caller& me);
  void broadcast(Caller& me, std::uint32_t ring);
  void receive(Caller& me, std::uint32_t ring, const Planned& op);
  bool hear(Caller& me, std::uint32_t ring, bool slowly = false);
  void critical(Caller& me, const Planned& op);
  void lookup(Caller& me, const Planned& op);
  void change(Caller& me, const Planned& op);
  void drop_acquisition(Caller& me, const Planned& op);
  void drop_change(Caller& me, const Planned& op);
  void exchange(Caller& me, const Planned& op);
  void use_record(Caller& me, Caller& writer, std::uint32_t lock, NodeId host);
  std::int64_t ordinal_of(std::uint64_t ticket) const;
  void check_grant(std::uint32_t lock, bool by_ticket);
  std::int32_t process(const Caller& me) const;
  void require(fabric::Status status, NodeId peer, const char* what);
  /// Waits for the key of requests to `peer`.
  void require(AckKey& key, NodeId peer, const char* what);

  World& world_;
  Env& env_;
  const Shape shape_;
  const NodeId owners_;  // nodes that own variables; a variable of each of many nodes takes long
  Manager manager_;
  std::vector<std::unique_ptr<OwnedVar<Wide>>> pushed_, pulled_;  // by owner
  std::vector<std::unique_ptr<OwnedVar<std::uint64_t>>> halves_;  // pushed; equal halves
  std::vector<std::unique_ptr<RingBuffer>> rings_;
  AtomicVars words_;
  std::unique_ptr<SharedQueueOf<std::uint64_t>> queue_;  // at members
  std::unique_ptr<TicketLocks> locks_;                   // at members
  SharedRegion records_, marks_;
  Barrier barrier_;
  std::unique_ptr<KvStore> store_;  // in runs that use it
  std::array<std::vector<Planned>, kCallers> plans_;
  std::array<std::vector<std::uint64_t>, kCallers> seen_;    // last number seen, by owner
  std::array<std::optional<std::uint32_t>, kCallers> held_;  // lock of each client
  std::atomic<bool> pushing_{false};                         // by one of the clients
  std::uint32_t errors_ = 0;                                 // of dropped work
};

}  // namespace pyrdma::loco::scenario
