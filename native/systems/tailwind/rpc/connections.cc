// The connections of a transport: how they begin and end.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "fabric/ending.h"
#include "fabric/sender.h"
#include "systems/tailwind/rpc/transport.h"

namespace pyrdma::tailwind {

namespace {

constexpr Time kKnockInterval = 200 * kMicrosecond;  // doubles up to a hundredfold

}  // namespace

// Who takes requests may probe who makes them, by a write of no bytes.
std::unique_ptr<fabric::QueuePair> Transport::make_queue_pair(EndOf end, bool is_of_client) {
  const bool is_log = end == EndOf::kLog;
  fabric::QpOptions options;
  options.send_entries = is_log ? 1 : kSendEntries;
  options.receive_entries = 1;
  options.max_sges = 1;
  options.max_inline = is_log ? 0 : max_inline_;
  options.access = fabric::kLocalWrite;
  if (end != EndOf::kIncoming) options.access |= fabric::kRemoteWrite;
  if (is_log) options.access |= fabric::kRemoteRead;
  options.timeout_us = options_.timeout_us;
  options.retry_count = options_.retry_count;
  return env_.device().create_queue_pair(*domain_, *completions_, *completions_, options,
                                         is_log ? nullptr
                                         : is_of_client && client_receives_ != nullptr
                                             ? client_receives_.get()
                                             : receives_.get());
}

// The end for a knock.
std::unique_ptr<fabric::QueuePair> Transport::connected(const Hello& knock) {
  std::unique_ptr<fabric::QueuePair> made = make_queue_pair(
      knock.is_log != 0 ? EndOf::kLog : EndOf::kIncoming, !ServerId::of(knock.from).is_server());
  made->connect(knock.address);
  return made;
}

Transport::Session* Transport::session_to(ServerId to, Time deadline) {
  if (const auto known = outgoing_.find(to); known != outgoing_.end())
    return &sessions_.at(known->second);
  std::unique_ptr<fabric::QueuePair> end;
  try {
    end = make_queue_pair(EndOf::kOutgoing);
  } catch (const Error&) {
    env_.reached("tailwind/no_queue_pair");
    return nullptr;
  }
  const std::uint64_t number = next_session_++;
  Session& session = sessions_[number];
  session.number = number;
  session.peer = to;
  session.is_outgoing = true;
  session.nonce = ++next_nonce_;
  session.qp = std::move(end);
  by_qp_[session.qp->qp_num()] = number;
  outgoing_[to] = number;
  Knock made;
  made.session = number;
  made.to = to;
  made.deadline = deadline;
  made.hello.nonce = session.nonce;
  made.hello.address = session.qp->address();
  knock(made, env_.now());
  knocks_.push_back(std::move(made));
  return &session;
}

void Transport::connect_log(ServerId to, const fabric::QpAddress& own, Time deadline,
                            OnConnected on_connected) {
  const std::lock_guard<Mutex> lock(mutex_);
  Knock made;
  made.to = to;
  made.deadline = closed_.contains(to) ? 0 : deadline;
  made.hello.nonce = ++next_nonce_;
  made.hello.is_log = 1;
  made.hello.address = own;
  made.on_connected = std::move(on_connected);
  if (made.deadline != 0) knock(made, env_.now());
  knocks_.push_back(std::move(made));
}

// A node may have no port yet, or a newer one than when it was found.
void Transport::knock(Knock& knock, Time now) {
  ServerId to = knock.to;
  if (to.life == kNewest) {
    std::uint32_t& incarnation = newest_[to.node];
    while (incarnation + 1 < ServerId::kIncarnations &&
           port_->was_there(ServerId::of_server(to.node, incarnation + 1, 0)))
      ++incarnation;
    to = ServerId::of_server(to.node, incarnation, 0);
  }
  if (knock.place.handle == nullptr || knock.hello.to != to.number()) {
    const auto found = port_->find(to);
    if (found) knock.place = *found;
  }
  knock.hello.from = self_.number();
  knock.hello.to = to.number();
  knock.interval = std::clamp(2 * knock.interval, kKnockInterval, 64 * kKnockInterval);
  knock.next = now + knock.interval;
  if (knock.place.handle != nullptr) port_->send(knock.place, knock.hello);
}

// A node speaks for itself alone. Over verbs its number is the one that it names, at the port that
// the network names.
bool Transport::is_from_its_sender(const ReceivedHello& received) const {
  if (!bugs_.checks_senders()) return true;
  const Hello& hello = received.hello;
  const NodeId node = ServerId::of(hello.from).node;
  const bool has_address = hello.kind == Hello::Kind::kKnock || hello.kind == Hello::Kind::kAccept;
  return received.is_from_port && hello.port.node == node &&
         (!has_address || hello.address.node == node);
}

void Transport::take_hello(const ReceivedHello& received) {
  const Hello& hello = received.hello;
  const ServerId from = ServerId::of(hello.from);
  const bool may_have_log = from.is_server() && from.node < options_.servers;
  if (hello.to != self_.number() || !is_from_its_sender(received) ||
      (hello.is_log != 0 && hello.kind == Hello::Kind::kKnock && !may_have_log)) {
    ++counters_.malformed;
    return;
  }
  if (hello.kind == Hello::Kind::kKnock)
    take_knock(hello);
  else
    take_answer(hello);
}

// Anybody may knock. Where the device refuses the address, or has no queue pair left, this knock
// has no answer, and whoever sent it may knock again.
void Transport::take_knock(const Hello& hello) {
  try {
    answer_knock(hello);
  } catch (const Error&) {
    if (bugs_.survives_knocks()) {
      env_.reached("tailwind/knock_failed");
      ++counters_.malformed;
      return;
    }
    throw;
  }
}

void Transport::answer_knock(const Hello& hello) {
  const ServerId from = ServerId::of(hello.from);
  Hello answer;
  answer.kind = Hello::Kind::kRefuse;
  answer.nonce = hello.nonce;
  answer.from = self_.number();
  answer.to = hello.from;
  answer.is_log = hello.is_log;
  const Doorbell place = port_->doorbell(hello.port);
  if (!closed_.contains(from)) {
    end_replaced_by(from);
    const End end = hello.is_log != 0 ? log_end_for(hello) : session_for(hello);
    answer.kind = end.qp != nullptr ? Hello::Kind::kAccept : Hello::Kind::kTaken;
    answer.connection = end.number;
    if (end.qp != nullptr) answer.address = end.qp->address();
  }
  port_->send(place, answer);
}

// Whether the knock takes the place of a connection that its sender has here. Its own connection
// has the same nonce, and the same answer again.
bool Transport::replaces(const Hello& knock, std::uint64_t connection, std::uint64_t nonce) const {
  return bugs_.orders_by_connection() ? knock.connection == connection : knock.nonce > nonce;
}

Transport::End Transport::log_end_for(const Hello& knock) {
  const ServerId from = ServerId::of(knock.from);
  if (const auto known = log_ends_.find(from); known != log_ends_.end()) {
    const LogEnd& end = known->second;
    if (end.nonce == knock.nonce) return {end.number, end.qp.get()};
    if (!replaces(knock, end.number, end.nonce)) return {end.number, nullptr};
    end_log(from);
  }
  LogEnd made{next_session_++, knock.nonce, connected(knock)};
  const LogEnd& end = log_ends_[from] = std::move(made);
  return {end.number, end.qp.get()};
}

Transport::End Transport::session_for(const Hello& knock) {
  const ServerId from = ServerId::of(knock.from);
  if (const auto known = incoming_.find(from); known != incoming_.end()) {
    const Session& session = sessions_.at(known->second);
    if (session.nonce == knock.nonce) return {session.number, session.qp.get()};
    if (!replaces(knock, session.number, session.nonce)) return {session.number, nullptr};
    end_session(session.number);
  }
  std::unique_ptr<fabric::QueuePair> made = connected(knock);
  const std::uint64_t number = next_session_++;
  Session& session = sessions_[number];
  session.number = number;
  session.peer = from;
  session.nonce = knock.nonce;
  session.is_ready = true;
  session.heard = env_.now();
  session.qp = std::move(made);
  by_qp_[session.qp->qp_num()] = number;
  incoming_[from] = number;
  return {number, session.qp.get()};
}

// Only whom the knock went to answers it.
void Transport::take_answer(const Hello& hello) {
  const auto at = std::ranges::find_if(
      knocks_, [&](const Knock& knock) { return knock.hello.nonce == hello.nonce; });
  if (at == knocks_.end() || at->hello.to != hello.from) return;
  if (bugs_.checks_senders() && !fabric::is_same_pair(at->place.address, hello.port)) {
    ++counters_.malformed;
    return;
  }
  if (hello.kind == Hello::Kind::kTaken) {
    env_.reached("tailwind/connection_replaced");
    at->hello.connection = hello.connection;
    at->interval = 0;
    return this->knock(*at, env_.now());
  }
  Knock knock = std::move(*at);
  knocks_.erase(at);
  const bool is_accepted = hello.kind == Hello::Kind::kAccept;
  if (knock.on_connected) {
    timers_.push_back(
        {0, [act = std::move(knock.on_connected), is_accepted, address = hello.address] {
           act(is_accepted ? std::optional(address) : std::nullopt);
         }});
    return;
  }
  const auto found = sessions_.find(knock.session);
  if (found == sessions_.end()) return;
  if (!is_accepted) return end_session(knock.session, CallEnd::kRefused);
  try {
    found->second.qp->connect(hello.address);
  } catch (const Error&) {
    return end_session(knock.session);
  }
  found->second.is_ready = true;
  flush(found->second);
}

void Transport::end_session(std::uint64_t number, CallEnd end) {
  const auto at = sessions_.find(number);
  if (at == sessions_.end()) return;
  Session session = std::move(at->second);
  sessions_.erase(at);
  by_qp_.erase(session.qp->qp_num());
  if (session.is_ready) ++counters_.broken;
  std::erase_if(knocks_, [&](const Knock& knock) { return knock.session == number; });
  auto& known = session.is_outgoing ? outgoing_ : incoming_;
  if (const auto own = known.find(session.peer); own != known.end() && own->second == number)
    known.erase(own);
  std::vector<std::uint64_t> calls;
  for (const auto& [call, each] : calls_)
    if (each.session == number) calls.push_back(call);
  std::ranges::sort(calls);
  for (const std::uint64_t call : calls) end_call(call, end);
  std::vector<std::uint32_t> frames;
  for (const auto& [position, frame] : session.in_flight) frames.push_back(frame);
  this->end(session.peer, std::move(session.qp), std::move(frames));
}

void Transport::end_log(ServerId peer) {
  const auto end = log_ends_.find(peer);
  if (end == log_ends_.end()) return;
  this->end(peer, std::move(end->second.qp));
  log_ends_.erase(end);
}

// A write that the peer's CPU carries out may be under way.
void Transport::end(ServerId peer, std::unique_ptr<fabric::QueuePair> qp,
                    std::vector<std::uint32_t> frames) {
  qp->fail();
  endings_.push_back({peer, std::move(qp), std::move(frames), env_.now()});
}

// Its node is in a later life.
void Transport::end_replaced_by(ServerId peer) {
  std::vector<std::uint64_t> sessions;
  std::vector<ServerId> logs;
  const ServerId first{peer.node, 0};
  for (auto at = incoming_.lower_bound(first); at != incoming_.end() && at->first < peer; ++at)
    if (peer.replaces(at->first)) sessions.push_back(at->second);
  for (auto at = log_ends_.lower_bound(first); at != log_ends_.end() && at->first < peer; ++at)
    if (peer.replaces(at->first)) logs.push_back(at->first);
  for (const std::uint64_t session : sessions) end_session(session);
  for (const ServerId life : logs) end_log(life);
}

void Transport::close(ServerId peer) {
  const std::lock_guard<Mutex> lock(mutex_);
  if (!closed_.insert(peer).second) return;
  std::vector<std::uint64_t> ending;
  for (const auto& [number, session] : sessions_)
    if (session.peer == peer) ending.push_back(number);
  for (const std::uint64_t number : ending) end_session(number);
  end_log(peer);
  for (Knock& knock : knocks_)
    if (knock.to == peer) knock.deadline = 0;
}

bool Transport::is_quiet(ServerId peer) {
  const std::lock_guard<Mutex> lock(mutex_);
  return closed_.contains(peer) && std::ranges::none_of(endings_, [&](const Ending& each) {
           return each.peer == peer && !each.qp->is_quiet();
         });
}

// The polling thread takes the last completions: `passed_` says when.
void Transport::destroy_ended(Time now) {
  std::erase_if(endings_, [&](Ending& each) {
    if (each.taken_at == 0) {
      if (fabric::has_flushed(*each.qp, each.failed, now))
        each.taken_at = passed_ + completion_count_;
      return false;
    }
    if (passed_ < each.taken_at) return false;
    each.qp.reset();
    free_frames_.insert(free_frames_.end(), each.frames.begin(), each.frames.end());
    return true;
  });
}

}  // namespace pyrdma::tailwind
