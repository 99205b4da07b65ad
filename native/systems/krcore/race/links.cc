#include "systems/krcore/race/links.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/error.h"
#include "env/scope.h"
#include "fabric/overrun.h"
#include "systems/krcore/scopes.h"

namespace pyrdma::krcore::race {

namespace {

constexpr std::size_t kBatch = 32;  // requests per post, completions per poll
// A completion frees the places of all requests before it, so there is one for each so many.
constexpr std::uint32_t kLongestPart = 32;

// A request's wr_id: | signaled 1 | 15 | requests that its completion ends 16 | storage node 16 |
// task 16 |. Errors complete unsignaled requests as well, and those end no part of a round.
constexpr std::uint64_t kSignaledBit = 1ULL << 63;
constexpr std::uint64_t wr_id_of(std::uint32_t node, std::uint32_t task, std::uint32_t ends) {
  return std::uint64_t{ends & 0xffff} << 32 | std::uint64_t{node & 0xffff} << 16 | (task & 0xffff);
}

}  // namespace

Links::Links(Env& env, std::span<fabric::QueuePair* const> pairs,
             fabric::CompletionQueue& completions, const TableAddress& table,
             const fabric::MemoryRegion& memory, std::uint32_t entries)
    : env_(env),
      completions_(completions),
      table_(table),
      memory_(memory),
      entries_(entries),
      links_(pairs.size()) {
  if (pairs.size() != table.nodes)
    throw Error(ErrorCode::kInvalidArgument, "a RACE client has " + std::to_string(pairs.size()) +
                                                 " connections; the table has " +
                                                 std::to_string(table.nodes) +
                                                 " storage nodes: connect to each of them once");
  const std::uint64_t most = std::uint64_t{entries} * pairs.size();
  if (entries < 2 || entries > 0xffff || completions.entries() < most)
    throw Error(ErrorCode::kInvalidArgument,
                "a RACE client may have " + std::to_string(entries) +
                    " requests in flight (queue_entries, 2 to 65535) on each of " +
                    std::to_string(pairs.size()) + " connections, and its completion queue has " +
                    std::to_string(completions.entries()) + " entries: give it at least " +
                    std::to_string(most));
  for (std::size_t i = 0; i < pairs.size(); ++i) links_[i].pair = pairs[i];
}

void Links::add(Task& task) {
  PYRDMA_CHECK(tasks_.size(), <, kNobody);
  task.number_ = static_cast<std::uint32_t>(tasks_.size());
  tasks_.push_back(&task);
}

Links::Request& Links::add_request(std::uint32_t node, fabric::Opcode opcode, std::uint64_t offset,
                                   const void* local, std::uint32_t bytes) {
  Link& link = links_[node];
  if (link.unsignaled >= std::min(kLongestPart, entries_ / 2)) ring_unawaited(node);
  const auto at = static_cast<std::uint64_t>(static_cast<const std::byte*>(local) - memory_.data());
  Request& request = link.queue.emplace_back();
  request.sge = memory_.sge(at, bytes);
  request.work.sge_count = 1;
  request.work.opcode = opcode;
  request.work.flags = 0;
  request.work.remote_addr = table_.regions[node].addr + offset;
  request.work.rkey = table_.regions[node].rkey;
  request.work.wr_id = wr_id_of(node, kNobody, 0);
  ++link.unsignaled;
  return request;
}

void Links::read(std::uint32_t node, std::uint64_t offset, void* into, std::uint32_t bytes) {
  ++reads_;
  add_request(node, fabric::Opcode::kRead, offset, into, bytes);
}

void Links::write(std::uint32_t node, std::uint64_t offset, const void* from, std::uint32_t bytes) {
  add_request(node, fabric::Opcode::kWrite, offset, from, bytes);
}

void Links::swap(std::uint32_t node, std::uint64_t offset, std::uint64_t expected,
                 std::uint64_t desired, std::uint64_t* old) {
  Request& request = add_request(node, fabric::Opcode::kCompareSwap, offset, old, 8);
  request.work.compare_add = expected;
  request.work.swap = desired;
}

void Links::fetch_add(std::uint32_t node, std::uint64_t offset, std::uint64_t addend,
                      std::uint64_t* old) {
  add_request(node, fabric::Opcode::kFetchAdd, offset, old, 8).work.compare_add = addend;
}

void Links::end_part(std::uint32_t node, std::uint32_t number, Task* task) {
  Link& link = links_[node];
  if (task != nullptr) {
    if (task->pending_ == 0) task->lost_ = false;
    ++task->pending_;
  }
  if (link.broken != fabric::Status::kSuccess) {
    link.queue.clear();
    link.posted = link.unsignaled = 0;
    broken_parts_.emplace_back(number, node);
    return;
  }
  PYRDMA_CHECK(link.unsignaled, >, 0U);
  Request& last = link.queue.back();
  last.work.flags = fabric::kSignaled;
  last.work.wr_id = kSignaledBit | wr_id_of(node, number, link.unsignaled);
  link.unsignaled = 0;
}

void Links::end_part_of(std::uint32_t number, bool failed, std::uint32_t node) {
  if (number >= tasks_.size()) return;
  Task& task = *tasks_[number];
  if (failed) {
    task.lost_ = true;
    task.lost_node_ = node;
  }
  PYRDMA_CHECK(task.pending_, >, 0U);
  if (--task.pending_ == 0) ready_.push_back(&task);
}

bool Links::take() {
  std::array<fabric::Completion, kBatch> taken;
  const std::size_t count = completions_.poll(taken);
  if (count == 0) fabric::check_overrun(completions_, env_.node(), "a RACE client");
  for (std::size_t i = 0; i < count; ++i) {
    const Scope step(env_, scope::race_take_completion);
    const fabric::Completion& completion = taken[i];
    const auto node = static_cast<std::uint32_t>(completion.wr_id >> 16 & 0xffff);
    const auto number = static_cast<std::uint32_t>(completion.wr_id & 0xffff);
    if (node >= links_.size()) continue;  // of somebody else
    const bool failed = completion.status != fabric::Status::kSuccess;
    if (failed) break_link(node, completion.status);
    if ((completion.wr_id & kSignaledBit) == 0) continue;
    const auto ended = static_cast<std::uint32_t>(completion.wr_id >> 32 & 0xffff);
    links_[node].in_flight -= std::min(ended, links_[node].in_flight);
    end_part_of(number, failed, node);
  }
  return count != 0;
}

Task* Links::next_ready() {
  for (const auto& [number, node] : std::exchange(broken_parts_, {}))
    end_part_of(number, true, node);
  if (ready_.empty()) return nullptr;
  Task* task = ready_.front();
  ready_.pop_front();
  return task;
}

bool Links::post() {
  for (std::uint32_t node = 0; node < links_.size(); ++node) {
    if (links_[node].posted < links_[node].queue.size()) post(node);
  }
  return ready_.empty() && broken_parts_.empty();
}

void Links::post(std::uint32_t node) {
  const Scope step(env_, scope::race_ring);
  Link& link = links_[node];
  std::array<fabric::WorkRequest, kBatch> batch;
  while (link.posted < link.queue.size() && link.in_flight < entries_) {
    const std::size_t count = std::min(
        {batch.size(), link.queue.size() - link.posted, std::size_t{entries_ - link.in_flight}});
    for (std::size_t i = 0; i < count; ++i) {
      const Request& request = link.queue[link.posted + i];
      batch[i] = request.work;
      batch[i].sges = &request.sge;
    }
    ++doorbells_;
    const fabric::PostResult result = link.pair->post({batch.data(), count});
    link.posted += result.accepted;
    link.in_flight += result.accepted;
    if (result.error == fabric::PostError::kQueueFull) break;
    if (result.error != fabric::PostError::kNone) {
      return break_link(node, fabric::Status::kLocalQpOperation);
    }
  }
  if (link.posted == link.queue.size()) {
    link.queue.clear();
    link.posted = 0;
  }
}

bool Links::is_idle() const {
  return std::ranges::all_of(links_, [](const Link& link) {
    return link.queue.empty() && (link.in_flight == 0 || link.broken != fabric::Status::kSuccess);
  });
}

// What was posted completes as flushed. What was not posted ends here.
void Links::break_link(std::uint32_t node, fabric::Status status) {
  Link& link = links_[node];
  if (link.broken != fabric::Status::kSuccess) return;
  link.broken = status;
  for (std::size_t i = link.posted; i < link.queue.size(); ++i) {
    const std::uint64_t wr_id = link.queue[i].work.wr_id;
    if ((wr_id & kSignaledBit) != 0)
      end_part_of(static_cast<std::uint32_t>(wr_id & 0xffff), true, node);
  }
  link.queue.clear();
  link.posted = link.unsignaled = 0;
}

}  // namespace pyrdma::krcore::race
