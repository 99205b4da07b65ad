// The requests of a client, and what it learns from their ends.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "systems/krcore/fuzz/client.h"

namespace pyrdma::krcore::scenario {

using check::Function;
using check::Value;
using fabric::Opcode;
using fabric::Status;
using Kind = Posted::Kind;

std::uint64_t Client::cell_at(const Link& link, std::uint32_t word) const {
  return world_.nodes[link.target].cells.addr +
         (kMostShared + std::uint64_t{link.place} + word) * 8;
}

std::uint64_t Client::shared_at(const Link& link, std::uint32_t word) const {
  return world_.nodes[link.target].cells.addr + std::uint64_t{word} * 8;
}

// Appends a request of 8 bytes. Returns false if the client has no memory left for it.
bool Client::add(List& list, Posted posted, Opcode opcode, std::uint64_t addr, std::uint32_t key) {
  const auto piece = words_.take(world_.now());
  if (!piece) return false;
  posted.piece = *piece;
  std::memset(at(*piece), 0, 8);
  list.sges.push_back({memory_.addr + *piece, 8, memory_.key});
  fabric::WorkRequest request;
  request.sges = &list.sges.back();
  request.sge_count = 1;
  request.opcode = opcode;
  request.flags = 0;  // it has a signal by default
  if (posted.is_signaled) request.flags = fabric::kSignaled;
  request.remote_addr = addr;
  request.rkey = key;
  request.compare_add = 1;
  list.requests.push_back(request);
  list.posted.push_back(posted);
  return true;
}

// A read sees what was written before it on the same queue pair.
bool Client::writes(Link& link, std::uint64_t draw) {
  const std::uint32_t key = world_.nodes[link.target].cells.key;
  const std::uint32_t count = 1 + static_cast<std::uint32_t>(draw % 6);
  List list;
  std::uint64_t words[kWords];
  std::copy(std::begin(link.words), std::end(link.words), std::begin(words));
  for (std::uint32_t i = 0; i < count; ++i) {
    // A NIC may place two writes to one word out of order (placement_reorder).
    const auto word = static_cast<std::uint32_t>(((draw >> 8) + i) % kWords);
    Posted posted;
    posted.is_signaled = (draw >> (i + 40) & 1) == 0;
    if (!add(list, posted, Opcode::kWrite, cell_at(link, word), key)) return give_up(list);
    if (i == 0) list.requests.back().flags |= fabric::kFence;  // behind reads of earlier lists
    words[word] = world_.next_value++;
    std::memcpy(at(list.posted.back().piece), &words[word], 8);
  }
  Posted read;
  read.kind = Kind::kRead;
  read.word = static_cast<std::uint32_t>((draw >> 50) % kWords);
  read.expected = words[read.word];
  if (!add(list, read, Opcode::kRead, cell_at(link, read.word), key)) return give_up(list);
  if (!post(link, list)) return false;
  std::copy(std::begin(words), std::end(words), std::begin(link.words));
  return true;
}

// An addition happens once.
bool Client::add_one(Link& link, std::uint64_t draw) {
  List list;
  Posted posted;
  posted.kind = Kind::kAdd;
  posted.word = static_cast<std::uint32_t>(draw % kWords);
  posted.expected = link.words[posted.word];
  if (!add(list, posted, Opcode::kFetchAdd, cell_at(link, posted.word),
           world_.nodes[link.target].cells.key))
    return false;
  list.requests.back().flags |= fabric::kFence;  // behind reads of earlier lists
  if (!post(link, list)) return false;
  if (posted.expected != kUnknown) ++link.words[posted.word];
  return true;
}

// A write has happened when a read behind it has ended.
bool Client::shared(Link& link, std::uint64_t draw) {
  const std::uint32_t word = world_.shared_word(link.target, draw >> 8);
  const std::uint64_t addr = shared_at(link, word);
  const std::uint32_t key = world_.nodes[link.target].cells.key;
  const auto begin_at = [&](Function f, std::uint64_t value) {
    return world_.registers.begin(world_.now(), link.target, link.life, word, f,
                                  static_cast<std::int64_t>(value));
  };
  List list;
  std::uint64_t written = 0;
  const std::uint64_t what = draw % 4;
  if (what == 2) {
    Posted posted;
    posted.kind = Kind::kSharedAdd;
    if (!add(list, posted, Opcode::kFetchAdd, addr, key)) return false;
    list.posted.back().number = begin_at(Function::kFetchAdd, 1);
    return post(link, list);
  }
  if (what == 0 || what == 3) {
    Posted posted;
    posted.kind = Kind::kSharedWrite;
    posted.is_signaled = (draw >> 40 & 1) == 0;
    if (!add(list, posted, Opcode::kWrite, addr, key)) return false;
    const std::uint64_t value = world_.next_value++ << 12;  // additions follow it
    std::memcpy(at(list.posted.back().piece), &value, sizeof value);
    written = list.posted.back().number = begin_at(Function::kWrite, value);
  }
  Posted read;
  read.kind = Kind::kSharedRead;
  read.drained = written;
  if (!add(list, read, Opcode::kRead, addr, key)) return give_up(list);
  list.posted.back().number = begin_at(Function::kRead, 0);
  return post(link, list);
}

bool Client::message(Link& link, std::uint32_t bytes) {
  const auto piece = messages_.take(world_.now());
  if (!piece) return false;
  Stream& stream = world_.streams.at(link.stream);
  MessageStart start{link.stream, stream.sent, 0};
  const std::uint32_t size = static_cast<std::uint32_t>(sizeof start) + bytes;
  std::byte* const into = at(*piece);
  for (std::uint32_t i = 0; i < bytes; ++i)
    into[sizeof start + i] =
        static_cast<std::byte>(mix64(start.number + i / 8 + start.stream) >> i % 8);
  start.sum = sum_of_body(start, std::span<const std::byte>(into, size));
  std::memcpy(into, &start, sizeof start);
  List list;
  list.sges.push_back({memory_.addr + *piece, size, memory_.key});
  fabric::WorkRequest request;
  request.sges = &list.sges.back();
  request.sge_count = 1;
  request.opcode = Opcode::kSend;
  request.flags = fabric::kSignaled;
  list.requests.push_back(request);
  Posted posted;
  posted.kind = Kind::kMessage;
  posted.piece = *piece;
  posted.message = stream.sent + 1;
  list.posted.push_back(posted);
  // Another thread may take it before the call returns.
  ++stream.sent;
  return post(link, list);
}

// A bad request fails alone: the queue pair goes on, and so do all others.
void Client::malformed(Link& link, std::uint64_t draw) {
  List list;
  Posted posted;
  posted.kind = Kind::kBad;
  const Registration& cells = world_.nodes[link.target].cells;
  if (!add(list, posted, Opcode::kWrite, cell_at(link, 0), cells.key)) return;
  fabric::WorkRequest& request = list.requests.front();
  fabric::Sge& sge = list.sges.front();
  switch (draw / 4 % 6) {
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
      request.remote_addr = cells.addr + (1 << 19);
      break;
    case 4:
      request.opcode = Opcode::kReceive;
      break;
    default:
      request.opcode = Opcode::kFetchAdd;
      request.remote_addr += 4;
  }
  post(link, list);
}

// Ends the physical queue pair if it carries requests. Other threads may learn of it before the
// call returns.
bool Client::breaks(Link& link) {
  Time& broke = world_.nodes[env_.node()].broke;
  const Time now = world_.now(), before = std::exchange(broke, now);
  if (service_.break_physical(link.queue, Service::Break::kUnderRequests)) return true;
  if (broke == now) broke = before;
  return false;
}

// The physical queue pair fails. What is behind a refusal goes on by another one. What the queue
// pair carries otherwise may have run or not, and the next list may find the failure.
void Client::break_under(Link& link, std::uint64_t draw) {
  if (!world_.shape.breaks || draw / 4 % 2 == 0) {
    service_.break_physical(link.queue, Service::Break::kRefused);
    if (!add_one(link, draw / 8) || !writes(link, draw / 64)) return;
    message(link, 10);
    message(link, kMostMessage - 64);
    env_.sleep_until(env_.now() + static_cast<Time>(draw >> 32 & 0x3ffff));
    return;
  }
  if (draw / 8 % 2 == 0) return go_another_way(link, draw / 16);
  if (!add_one(link, draw / 8) || !writes(link, draw / 64)) return;
  const bool is_read = draw / 16 % 2 == 0;
  if (is_read) message(link, kMostMessage - 64);
  env_.sleep_until(env_.now() + static_cast<Time>(draw / 4096 % (is_read ? 16'000 : 3000)));
  if (!breaks(link)) return;
  env_.sleep_until(env_.now() + static_cast<Time>(draw >> 32 & 0x3fff));
  writes(link, draw / 4096);
}

// Messages that have been acknowledged may lie with a core of the peer, which takes those of
// another core first. Nothing fails: a READ under which the physical queue pair ends is posted
// again.
void Client::go_another_way(Link& link, std::uint64_t draw) {
  for (std::uint64_t left = 8 + draw % 24; left > 0; --left) message(link, 10);
  wait(link, 0);
  const bool announces = draw / 32 % 4 != 0;
  if (announces) {
    message(link, kMostMessage - 64);
    env_.sleep_until(env_.now() + static_cast<Time>(draw >> 32 & 0xffff));
  }
  shared(link, 1);
  if (!breaks(link)) return;
  if (announces) service_.start_transfer(link.queue, static_cast<std::uint32_t>(draw / 64 % 4));
  wait(link, 0);
  message(link, 10);
}

// Nothing of it was posted.
bool Client::give_up(List& list) {
  for (const Posted& posted : list.posted) {
    (posted.kind == Kind::kMessage ? messages_ : words_).give(posted.piece);
    if (posted.number != 0 && posted.kind != Kind::kLoan)
      world_.registers.fail(world_.now(), posted.number);
  }
  return false;
}

// A list may be posted in parts, so the last request of a call may have no signal.
bool Client::post(Link& link, List& list) {
  const Time now = world_.now();
  const bool is_bad = list.posted.front().kind == Kind::kBad;
  for (std::size_t i = 0; i < list.requests.size(); ++i) {
    list.posted[i].wr_id = list.requests[i].wr_id = next_wr_id_++;
    list.posted[i].at = now;
    list.posted[i].mark = mark_;
    list.posted[i].is_last = i + 1 == list.requests.size();
  }
  const std::size_t part = world_.shape.one_by_one ? 1 : list.requests.size();
  std::size_t done = 0;
  while (!world_.is_over && done != list.requests.size()) {
    const PushResult pushed = app_.push(
        link.queue, std::span<const fabric::WorkRequest>(list.requests).subspan(done, part));
    if (pushed.error == fabric::PostError::kQueueFull) {
      wait(link, link.open.empty() ? 0 : link.open.size() - 1);
      env_.sleep_until(env_.now() + kMicrosecond);
      continue;
    }
    if (pushed.error == fabric::PostError::kNone) {
      const auto from = list.posted.begin() + static_cast<std::ptrdiff_t>(done);
      link.open.insert(link.open.end(), from, from + static_cast<std::ptrdiff_t>(part));
      done += part;
      continue;
    }
    const Posted& refused = list.posted[done + pushed.accepted];
    // A queue pair that has failed looks nothing up. What has failed first tells why.
    if (pushed.status == Status::kRetryExceeded || pushed.error == fabric::PostError::kInvalidState)
      take_failures(link);
    if (pushed.error == fabric::PostError::kInvalidState)
      failed(link, Status::kFlushed, "a connection");
    else if (!is_bad && !is_of_ended_loan(refused, pushed.status))
      failed(link, pushed.status, "a look-up");
    break;
  }
  if (done == list.requests.size()) {
    mark_ = kUnknown;
    return true;
  }
  list.posted.erase(list.posted.begin(), list.posted.begin() + static_cast<std::ptrdiff_t>(done));
  // Those without a signal have no end of their own.
  for (; !link.open.empty() && !link.open.back().is_signaled; link.open.pop_back())
    words_.give_later(link.open.back().piece, world_.now());
  return give_up(list);
}

// Those at the end without a signal have a completion only if they failed, and then it is there.
void Client::take_failures(Link& link) {
  const auto last =
      std::ranges::find_if(link.open.rbegin(), link.open.rend(), &Posted::is_signaled);
  wait(link, static_cast<std::size_t>(last - link.open.rbegin()));
  fabric::Completion wc;
  while (!link.open.empty() && app_.wait(link.queue, {&wc, 1}, env_.now()) == 1) take(link, wc);
}

// Waits until at most so many are open.
void Client::wait(Link& link, std::size_t most) {
  fabric::Completion wc;
  while (link.open.size() > most && !world_.is_over) {
    if (app_.wait(link.queue, {&wc, 1}, env_.now() + 100 * kMicrosecond) == 1) take(link, wc);
  }
}

// Completions come in order. Those without a signal have one only if they fail.
void Client::take(Link& link, const fabric::Completion& wc) {
  while (!link.open.empty()) {
    const Posted posted = link.open.front();
    link.open.pop_front();
    const bool is_it = posted.wr_id == wc.wr_id;
    if (!is_it && posted.is_signaled) {
      world_.violation("completion", "request " + std::to_string(posted.wr_id) + " of node " +
                                         std::to_string(env_.node()) + " was due, and " +
                                         std::to_string(wc.wr_id) + " completed");
    }
    if (is_it && !posted.is_signaled && wc.status == Status::kSuccess)
      world_.violation("completion", "a request without a signal has completed");
    end(link, posted, is_it ? wc.status : Status::kSuccess);
    if (is_it) return;
  }
  world_.violation("completion", "request " + std::to_string(wc.wr_id) + " of node " +
                                     std::to_string(env_.node()) + " completed twice");
}

void Client::end(Link& link, const Posted& posted, Status status) {
  const bool is_ok = status == Status::kSuccess;
  if (is_ok)
    succeeded(link, posted);
  else if (posted.kind == Kind::kSharedRead)
    world_.registers.fail(world_.now(), posted.number);
  if (!is_ok) {
    link.has_failed_request |= posted.kind != Kind::kMessage;
    if (posted.kind == Kind::kBad && status != Status::kFlushed)
      world_.violation("malformed", std::string("a bad request was posted, and ended as ") +
                                        fabric::to_string(status));
    // A long message may wait for its receiver while a request behind it is refused.
    const bool is_before_refusal = posted.kind == Kind::kMessage && status == Status::kFlushed &&
                                   std::ranges::any_of(link.open, [this](const Posted& behind) {
                                     return is_of_ended_loan(behind, Status::kRemoteAccess);
                                   });
    if (is_before_refusal || is_of_ended_loan(posted, status))
      link.has_failed = true;
    else
      failed(link, status, "a request");
  }
  Pieces& pieces = posted.kind == Kind::kMessage ? messages_ : words_;
  is_ok ? pieces.give(posted.piece) : pieces.give_later(posted.piece, world_.now());
  if (posted.is_last) {
    ++(is_ok ? world_.outcome.ok : world_.outcome.info);
    end_operation(posted.mark);
  }
}

void Client::succeeded(Link& link, const Posted& posted) {
  const std::string where =
      "node " + std::to_string(env_.node()) + " at node " + std::to_string(link.target);
  if (link.has_failed_request)
    world_.violation("completion", where + ": a request succeeded behind one that failed");
  const World::Node& peer = world_.nodes[link.target];
  if (link.life < peer.deaths.size() && peer.deaths[link.life] < posted.at)
    world_.violation("outlived", where + ": a request succeeded on a connection to a dead life");
  ++world_.steps;
  world_.know(env_.node(), link.target, link.life);
  link.alive = std::max(link.alive, posted.at);
  link.is_sure = true;
  std::uint64_t found = 0;
  std::memcpy(&found, at(posted.piece), sizeof found);
  const Value value = Value::integer(static_cast<std::int64_t>(found));
  switch (posted.kind) {
    case Kind::kRead:
    case Kind::kAdd:
      if (posted.expected != kUnknown && found != posted.expected)
        world_.violation(posted.kind == Kind::kRead ? "read" : "atomic",
                         where + ": a word must be " + std::to_string(posted.expected) +
                             ", and is " + std::to_string(found));
      return world_.outcome.made("words");
    case Kind::kSharedRead:
      if (posted.drained != 0) world_.registers.ok(world_.now(), posted.drained, {});
      return world_.registers.ok(world_.now(), posted.number, value);
    case Kind::kSharedAdd:
      return world_.registers.ok(world_.now(), posted.number, value);
    case Kind::kMessage:
      world_.streams.at(link.stream).succeeded = posted.message;
      std::memset(at(posted.piece), 0xff, sizeof(MessageStart));  // nobody reads it any more
      return;
    case Kind::kBad:
      return world_.violation("malformed", where + ": a bad request was posted");
    case Kind::kWrite:
    case Kind::kSharedWrite:
    case Kind::kLoan:
      return;
  }
}

void Client::failed(Link& link, Status status, const char* what) {
  if (link.has_failed) return;
  link.has_failed = true;
  const NodeId target = link.target;
  const bool has_changed = world_.nodes[target].life != link.life || !world_.nodes[target].is_up;
  constexpr std::array kOfConnections{Status::kFlushed, Status::kRetryExceeded,
                                      Status::kRnrRetryExceeded, Status::kRemoteInvalidRequest,
                                      Status::kRemoteOperation};
  const bool may_be = std::ranges::find(kOfConnections, status) != kOfConnections.end();
  if (link.life < world_.nodes[target].life) world_.outcome.made("peers end connections");
  if (has_changed) return;
  // What is there, and was asked for correctly, is never refused.
  if (may_be && (world_.may_fail(env_.node(), target, link.alive) || !link.is_sure)) return;
  world_.violation("neighbour", std::string(what) + " of node " + std::to_string(env_.node()) +
                                    " to node " + std::to_string(target) + " ended as " +
                                    fabric::to_string(status));
}

}  // namespace pyrdma::krcore::scenario
