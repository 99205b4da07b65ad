#include "systems/krcore/fuzz/client.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"

namespace pyrdma::krcore::scenario {

using fabric::Opcode;
using fabric::Status;

namespace {

constexpr std::uint64_t kMessageAt = 1024;  // in a client's memory
constexpr std::uint64_t kMessagePlaces = 8;

}  // namespace

Client::Client(World& world, Service& service, std::uint32_t number)
    : world_(world),
      service_(service),
      env_(service.env()),
      number_(number),
      app_(service),
      memory_(app_.reg_mr(kMessageAt + kMessagePlaces * kMostMessage)) {
  next_value_ = (std::uint64_t{env_.node()} << 40 | std::uint64_t{number} << 32) +
                (std::uint64_t{env_.incarnation()} << 24) + 1;
}

void Client::run() {
  World::Node& self = world_.nodes[env_.node()];
  const std::vector<Planned>& plan = world_.plans[env_.node() * kClients + number_];
  while (self.next[number_] < plan.size() && !world_.is_over) {
    const Planned& op = plan[self.next[number_]++];
    const bool is_late = world_.outcome.begun != 0 && !world_.cluster->faults_are_on();
    if (!is_late) env_.sleep_until(env_.now() + op.pause);
    world_.phase.operation();
    if (world_.options.keeps(op.id)) act(op);
  }
  self.is_done[number_] = true;
  while (!world_.is_over && world_.cluster->faults_are_on())
    env_.sleep_until(env_.now() + 100 * kMicrosecond);
  // When all is well again, every node can be reached.
  for (NodeId target = 0; target < world_.options.nodes; ++target) {
    while (!world_.is_over && !reaches(target)) env_.sleep_until(env_.now() + 300 * kMicrosecond);
  }
  self.has_reached[number_] = true;
  while (!world_.is_over) env_.sleep_until(env_.now() + 200 * kMicrosecond);
}

bool Client::reaches(NodeId target) {
  Link* link = link_to(target);
  if (link == nullptr) return false;
  Planned op;
  op.target = target;
  writes(*link, op);
  const bool has_worked = !link->has_failed;
  if (!has_worked) drop(target);
  return has_worked;
}

void Client::act(const Planned& op) {
  if (op.act == Act::kRegion) return region();
  Link* link = link_to(op.target);
  if (link == nullptr) {
    ++world_.outcome.fail;
    return;
  }
  switch (op.act) {
    case Act::kWrites:
      writes(*link, op);
      break;
    case Act::kAdd:
      add(*link, op);
      break;
    case Act::kMessage:
      message(*link, op);
      break;
    case Act::kMalformed:
      malformed(*link, op);
      break;
    case Act::kRenew:
      drop(op.target);
      break;
    case Act::kMove:
      service_.start_transfer(link->queue, static_cast<std::uint32_t>(op.draw % service_.pools()));
      break;
    case Act::kRegion:
      break;
  }
  const auto used = links_.find(op.target);
  if (used != links_.end() && used->second.has_failed) drop(op.target);
}

Client::Link* Client::link_to(NodeId target) {
  const World::Node& peer = world_.nodes[target];
  if (!peer.is_up) return nullptr;
  if (const auto known = links_.find(target); known != links_.end()) {
    if (known->second.life == peer.life) return &known->second;
    drop(target);
  }
  Link made;
  made.queue = app_.create_queue();
  made.life = peer.life;
  const ConnectResult result = service_.connect(made.queue, target, kPort);
  if (result != ConnectResult::kConnected) {
    app_.destroy(made.queue);
    const bool must_work = !world_.may_fail(env_.node(), target) &&
                           std::ranges::none_of(world_.shape.service.meta_servers, [&](NodeId n) {
                             return world_.may_fail(env_.node(), n);
                           });
    if (must_work) {
      world_.violation("connect", "node " + std::to_string(env_.node()) +
                                      " could not connect to node " + std::to_string(target));
    }
    return nullptr;
  }
  made.stream = world_.next_stream++;
  world_.streams[made.stream] = {env_.node(), target, made.life, 0, 0, 0};
  const std::uint32_t generation = generations_[target]++ % kGenerations;
  made.place = ((env_.node() * kClients + number_) * kGenerations + generation) * kWords;
  std::fill(std::begin(made.words), std::end(made.words), ~0ULL);  // not known
  return &(links_[target] = made);
}

void Client::drop(NodeId target) {
  const auto known = links_.find(target);
  if (known == links_.end()) return;
  app_.destroy(known->second.queue);
  links_.erase(known);
}

void Client::failed(Link& link, NodeId target, Status status, const char* what) {
  link.has_failed = true;
  ++world_.outcome.info;
  const bool has_changed = world_.nodes[target].life != link.life || !world_.nodes[target].is_up;
  if (has_changed || world_.may_fail(env_.node(), target)) {
    // A region that is there is never refused.
    if (status != Status::kRemoteAccess || has_changed || world_.nodes[target].crashes != 0) return;
  }
  world_.violation("neighbour", std::string(what) + " of node " + std::to_string(env_.node()) +
                                    " to node " + std::to_string(target) + " ended as " +
                                    fabric::to_string(status));
}

Status Client::carry_out(Link& link, NodeId target, std::span<fabric::WorkRequest> list) {
  std::vector<std::uint64_t> expected;
  for (fabric::WorkRequest& request : list) {
    request.wr_id = next_wr_id_++;
    if ((request.flags & fabric::kSignaled) != 0) expected.push_back(request.wr_id);
  }
  std::size_t posted = 0;
  while (posted < list.size() && !world_.is_over) {
    const PushResult pushed = app_.push(link.queue, list.subspan(posted));
    if (pushed.error == fabric::PostError::kNone) break;
    if (pushed.error == fabric::PostError::kInvalid) return pushed.status;
    if (pushed.error == fabric::PostError::kInvalidState) return Status::kFlushed;
    env_.sleep_until(env_.now() + kMicrosecond);
  }
  Status worst = Status::kSuccess;
  std::array<fabric::Completion, 4> batch;
  for (std::size_t at = 0; at < expected.size();) {
    const std::size_t count =
        app_.wait(link.queue, std::span(batch).first(1), env_.now() + 100 * kMicrosecond);
    if (world_.is_over) return Status::kFlushed;
    for (const fabric::Completion& wc : std::span(batch).first(count)) {
      if (wc.status != Status::kSuccess) {
        // Errors come for requests without a signal, too.
        if (worst == Status::kSuccess) worst = wc.status;
        while (at < expected.size() && expected[at] <= wc.wr_id) ++at;
        continue;
      }
      if (wc.wr_id != expected[at]) {
        world_.violation("completion", "request " + std::to_string(expected[at]) + " of node " +
                                           std::to_string(env_.node()) + " was due, and " +
                                           std::to_string(wc.wr_id) + " completed");
      }
      if (worst != Status::kSuccess)
        world_.violation("completion", "a request succeeded behind one that failed");
      ++at;
    }
  }
  if (worst != Status::kSuccess) failed(link, target, worst, "a request");
  return worst;
}

fabric::WorkRequest Client::cell_request(const Link& link, NodeId target, Opcode opcode,
                                         std::uint32_t word, const fabric::Sge& sge) const {
  const Registration& cells = world_.nodes[target].cells;
  fabric::WorkRequest request;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = opcode;
  request.flags = fabric::kSignaled;
  request.remote_addr = cells.addr + (std::uint64_t{link.place} + word) * 8;
  request.rkey = cells.key;
  return request;
}

// A read sees what was written before it on the same queue pair.
void Client::writes(Link& link, const Planned& op) {
  const std::uint32_t count = 1 + static_cast<std::uint32_t>(op.draw % 6);
  std::vector<fabric::Sge> sges(count + 1);
  std::vector<fabric::WorkRequest> list;
  std::uint64_t words[kWords];
  std::copy(std::begin(link.words), std::end(link.words), std::begin(words));
  for (std::uint32_t i = 0; i < count; ++i) {
    // A NIC may place two writes to one word out of order (placement_reorder).
    const auto word = static_cast<std::uint32_t>(((op.draw >> 8) + i) % kWords);
    const std::uint64_t value = next_value_++;
    std::memcpy(memory_.data + 8 * i, &value, sizeof value);
    sges[i] = {memory_.addr + 8 * i, 8, memory_.key};
    list.push_back(cell_request(link, op.target, Opcode::kWrite, word, sges[i]));
    if ((op.draw >> (i + 40) & 1) != 0) list.back().flags = 0;
    words[word] = value;
  }
  const auto seen = static_cast<std::uint32_t>((op.draw >> 50) % kWords);
  sges[count] = {memory_.addr + 512, 8, memory_.key};
  list.push_back(cell_request(link, op.target, Opcode::kRead, seen, sges[count]));
  if (carry_out(link, op.target, list) != Status::kSuccess) {
    link.has_failed = true;
    return;
  }
  ++world_.outcome.ok;
  std::copy(std::begin(words), std::end(words), std::begin(link.words));
  std::uint64_t found = 0;
  std::memcpy(&found, memory_.data + 512, sizeof found);
  if (words[seen] != ~0ULL && found != words[seen]) {
    world_.violation("read", "node " + std::to_string(env_.node()) + " has written " +
                                 std::to_string(words[seen]) + " at node " +
                                 std::to_string(op.target) + " and reads " + std::to_string(found));
  }
  link.words[seen] = found;
}

// An addition happens once.
void Client::add(Link& link, const Planned& op) {
  const auto word = static_cast<std::uint32_t>(op.draw % kWords);
  const fabric::Sge sge{memory_.addr, 8, memory_.key};
  fabric::WorkRequest request = cell_request(link, op.target, Opcode::kFetchAdd, word, sge);
  request.compare_add = 1;
  if (carry_out(link, op.target, {&request, 1}) != Status::kSuccess) {
    link.has_failed = true;
    return;
  }
  ++world_.outcome.ok;
  std::uint64_t old = 0;
  std::memcpy(&old, memory_.data, sizeof old);
  if (link.words[word] != ~0ULL && old != link.words[word])
    world_.violation("atomic", "a word was " + std::to_string(link.words[word]) +
                                   ", and an addition found " + std::to_string(old));
  link.words[word] = old + 1;
}

void Client::message(Link& link, const Planned& op) {
  Stream& stream = world_.streams.at(link.stream);
  MessageStart start{link.stream, stream.sent, 0};
  const std::uint32_t bytes = static_cast<std::uint32_t>(sizeof start) + op.size;
  const std::uint64_t place = kMessageAt + message_place_ % kMessagePlaces * kMostMessage;
  std::byte* at = memory_.data + place;
  for (std::uint32_t i = 0; i < op.size; ++i)
    at[sizeof start + i] =
        static_cast<std::byte>(mix64(start.number + i / 8 + start.stream) >> i % 8);
  start.sum = sum_of_body(start, std::span<const std::byte>(at, bytes));
  std::memcpy(at, &start, sizeof start);
  const fabric::Sge sge{memory_.addr + place, bytes, memory_.key};
  fabric::WorkRequest request;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = Opcode::kSend;
  request.flags = fabric::kSignaled;
  ++stream.sent;
  if (carry_out(link, op.target, {&request, 1}) != Status::kSuccess) {
    link.has_failed = true;
    ++message_place_;  // the receiver may still read the old one (vqp/zero_copy.cc)
    return;
  }
  ++world_.outcome.ok;
  stream.succeeded = stream.sent;
}

// A bad request fails alone: the queue pair goes on, and so do all others.
void Client::malformed(Link& link, const Planned& op) {
  fabric::Sge sge{memory_.addr, 8, memory_.key};
  fabric::WorkRequest request = cell_request(link, op.target, Opcode::kWrite, 0, sge);
  switch (op.draw % 6) {
    case 0:
      sge.lkey ^= 0x40000000;
      break;
    case 1:
      sge.length = 1 << 20;
      break;
    case 2:
      request.rkey ^= 0x40000000;
      break;
    case 3:
      request.remote_addr = world_.nodes[op.target].cells.addr + (1 << 19);
      break;
    case 4:
      request.opcode = Opcode::kReceive;
      break;
    default:
      request.opcode = Opcode::kFetchAdd;
      request.remote_addr += 4;
  }
  request.wr_id = next_wr_id_++;
  const PushResult pushed = app_.push(link.queue, {&request, 1});
  if (pushed.error == fabric::PostError::kInvalid) return;
  if (pushed.error != fabric::PostError::kNone) {
    link.has_failed = true;
    return;
  }
  // A queue pair that has failed meanwhile flushes all.
  fabric::Completion wc;
  if (app_.wait(link.queue, {&wc, 1}, env_.now() + kMillisecond) == 1 &&
      wc.status == Status::kFlushed) {
    link.has_failed = true;
    return;
  }
  world_.violation("malformed", "a bad request was posted");
  link.has_failed = true;
}

// The memory of a region that has ended is used again only when nobody may write to it any more.
void Client::region() {
  Link* link = link_to(env_.node());
  if (link == nullptr) return;
  const Registration first = app_.reg_mr(64);
  const fabric::Sge sge{memory_.addr, 8, memory_.key};
  const std::uint64_t value = next_value_++;
  std::memcpy(memory_.data, &value, sizeof value);
  fabric::WorkRequest request = cell_request(*link, env_.node(), Opcode::kWrite, 0, sge);
  request.remote_addr = first.addr;
  request.rkey = first.key;
  if (carry_out(*link, env_.node(), {&request, 1}) != Status::kSuccess) {
    app_.dereg_mr(first);
    drop(env_.node());
    return;
  }
  app_.dereg_mr(first);
  const Time removed = env_.now();
  std::vector<Registration> others;
  // Who has checked the region may still use it; a new owner must not see that.
  for (int i = 0; i < 3; ++i) others.push_back(app_.reg_mr(64));
  const Time until = removed + service_.regions().grace() + service_.options().lease;
  bool was_refused = false;
  while (env_.now() < until && !world_.is_over) {
    const Time before = env_.now();
    std::uint64_t late = next_value_++;
    std::memcpy(memory_.data, &late, sizeof late);
    const PushResult pushed = app_.push(link->queue, {&request, 1});
    if (pushed.error == fabric::PostError::kInvalid) {
      was_refused = true;
    } else {
      if (was_refused) world_.violation("lease", "a region that had been refused was used again");
      if (before > removed + service_.options().lease + service_.options().lease / 100)
        world_.violation(
            "lease", "a region was used " + std::to_string(before - removed) + " ns after its end");
      fabric::Completion wc;
      app_.wait(link->queue, {&wc, 1}, env_.now() + 10 * kMillisecond);
      if (wc.status != Status::kSuccess) {
        link->has_failed = true;
        break;
      }
    }
    for (const Registration& other : others) {
      std::uint64_t word = 0;
      std::memcpy(&word, other.data, sizeof word);
      if (word != 0) world_.violation("lease", "a new region holds a write to an old one");
    }
    env_.sleep_until(env_.now() + 60 * kMicrosecond);
  }
  for (const Registration& other : others) app_.dereg_mr(other);
  ++world_.outcome.ok;
  if (link->has_failed) drop(env_.node());
}

}  // namespace pyrdma::krcore::scenario
