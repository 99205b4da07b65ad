// A client's connections to its storage nodes. Requests of all its operations wait in one queue per
// connection, and each turn posts them with one doorbell per connection.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "systems/krcore/race/address.h"

namespace pyrdma::krcore::race {

/// Something that posts rounds of requests and goes on when a round has ended.
class Task {
 public:
  virtual ~Task() = default;
  /// All requests of the round have ended; see lost().
  virtual void proceed() = 0;

 protected:
  /// Whether a request of the last round has failed, and at which storage node.
  bool lost() const { return lost_; }
  std::uint32_t lost_node() const { return lost_node_; }
  void forget_loss() { lost_ = false; }

 private:
  friend class Links;
  std::uint32_t number_ = 0, pending_ = 0, lost_node_ = 0;
  bool lost_ = false;
};

class Links {
 public:
  /// Requires one connected queue pair per storage node. `memory` holds all local buffers.
  Links(Env& env, std::span<fabric::QueuePair* const> pairs, fabric::CompletionQueue& completions,
        const TableAddress& table, const fabric::MemoryRegion& memory, std::uint32_t entries);

  /// A task that posts requests; it outlives the links, or is removed.
  void add(Task& task);
  /// Removes the task that was added last. Its requests may be in flight: nobody waits for them.
  void remove_last() { tasks_.pop_back(); }

  // Each of these adds a request to the queue of a storage node. Requests of one node take effect
  // in the order in which they were added. Local places lie in `memory`.
  void read(std::uint32_t node, std::uint64_t offset, void* into, std::uint32_t bytes);
  void write(std::uint32_t node, std::uint64_t offset, const void* from, std::uint32_t bytes);
  void swap(std::uint32_t node, std::uint64_t offset, std::uint64_t expected, std::uint64_t desired,
            std::uint64_t* old);
  void fetch_add(std::uint32_t node, std::uint64_t offset, std::uint64_t addend,
                 std::uint64_t* old);

  /// The requests that were added last end a part of the round of `task`, which proceeds when all
  /// parts have ended. Everything that was added to this node before has then ended too.
  void ring(Task& task, std::uint32_t node) { end_part(node, task.number_, &task); }
  /// Nobody waits for the requests that were added last.
  void ring_unawaited(std::uint32_t node) { end_part(node, kNobody, nullptr); }

  /// A task that has waited without requests proceeds in the next turn.
  void wake(Task& task) { ready_.push_back(&task); }

  /// Takes completions. Returns false when there was none.
  bool take();
  /// The next task whose round has ended, or null.
  Task* next_ready();
  /// Posts what waits. Returns false if tasks can proceed at once.
  bool post();

  /// No request is in flight or waits.
  bool is_idle() const;
  std::uint64_t doorbells() const { return doorbells_; }
  std::uint64_t reads() const { return reads_; }
  fabric::Status broken(std::uint32_t node) const { return links_[node].broken; }
  NodeId node_of(std::uint32_t node) const { return table_.regions[node].node; }

 private:
  static constexpr std::uint32_t kNobody = 0xffff;
  struct Request {
    fabric::WorkRequest work;
    fabric::Sge sge;
  };
  struct Link {
    fabric::QueuePair* pair = nullptr;
    std::vector<Request> queue;
    std::size_t posted = 0;        // of the queue
    std::uint32_t in_flight = 0;   // requests whose place in the send queue is not free again
    std::uint32_t unsignaled = 0;  // at the end of the queue
    fabric::Status broken = fabric::Status::kSuccess;
  };

  Request& add_request(std::uint32_t node, fabric::Opcode opcode, std::uint64_t offset,
                       const void* local, std::uint32_t bytes);
  void end_part(std::uint32_t node, std::uint32_t number, Task* task);
  void end_part_of(std::uint32_t number, bool failed, std::uint32_t node);
  void post(std::uint32_t node);
  void break_link(std::uint32_t node, fabric::Status status);

  Env& env_;
  fabric::CompletionQueue& completions_;
  const TableAddress& table_;
  const fabric::MemoryRegion& memory_;
  const std::uint32_t entries_;
  std::vector<Link> links_;
  std::vector<Task*> tasks_;
  std::deque<Task*> ready_;
  /// Parts of rounds on broken connections. They end when no task is within a step, because a round
  /// may have more parts.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> broken_parts_;  // task, storage node
  std::uint64_t doorbells_ = 0, reads_ = 0;
};

}  // namespace pyrdma::krcore::race
