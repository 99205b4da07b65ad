// The inbox of a service.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "fabric/ending.h"
#include "fabric/overrun.h"
#include "runtime/messages/messages.h"
#include "runtime/messages/parts.h"

namespace pyrdma::runtime {

using namespace messages;

namespace {

constexpr std::uint32_t kProbe = ~std::uint32_t{0};  // in the place of a slot
constexpr Time kTimeToConnect = kSecond;

}  // namespace

struct Inbox::Connection {
  ConnectRequest of;
  std::unique_ptr<fabric::QueuePair> qp;
  std::vector<std::uint32_t> sending;  // slots
  bool probing = false;
  Time silent_until = 0;  // no probe before: the peer may not have connected its end yet
  Time failed = 0;        // by close()
  std::array<std::uint64_t, kWindow> newest{};  // ids of the last calls, by slot of the peer
};

Inbox::Inbox(Env& env, const std::string& name, const InboxOptions& options)
    : env_(env), options_(options), mutex_(env) {
  const auto in_bounds = [](const char* what, std::uint64_t value, std::uint64_t most) {
    if (value >= 1 && value <= most) return;
    throw Error(ErrorCode::kInvalidArgument, std::string(what) + " of an inbox is " +
                                                 std::to_string(value) + "; give 1 to " +
                                                 std::to_string(most));
  };
  in_bounds("depth", options.depth, kMaxInboxDepth);
  in_bounds("max_bytes", options.max_bytes, kMaxMessageBytes);
  fabric::Device& device = env.device();
  need(device);
  domain_ = device.create_protection_domain();
  // A shared queue may have more places than it was asked for, see Receives::replace_lost.
  const std::uint32_t receives = 2 * (options.depth + Datagrams::kEntries);
  completions_ = device.create_completion_queue(receives + kMostSends + kMostProbes);
  memory_ = std::make_unique<MemoryPool>(env, *domain_, 64 * kKiB);
  slot_bytes_ = static_cast<std::uint32_t>(sizeof(Header) + options.max_bytes);
  receives_ = std::make_unique<Receives>(device, *domain_, *memory_, options.depth, slot_bytes_);
  datagrams_ = std::make_unique<Datagrams>(env, *domain_, *completions_, *memory_);
  // Peers look for one incarnation after the other. An earlier one may have ended before it bound.
  fabric::Rendezvous& rendezvous = device.rendezvous();
  for (std::uint32_t earlier = 0; earlier < env.incarnation(); ++earlier) {
    const std::string key = address_key(name, env.node(), earlier);
    if (!rendezvous.find(key)) rendezvous.publish_value(key, kNeverBound);
  }
  rendezvous.publish_value(address_key(name, env.node(), env.incarnation()),
                           Address{datagrams_->address()});
}

Inbox::~Inbox() = default;

// Returns false if some receives are not posted: see Datagrams::post_receives.
bool Inbox::post_receives() {
  const bool all = receives_->post();
  return datagrams_->post_receives() && all;
}

// Moves completions from the NIC to this process; returns true if there are any to handle, or if
// none can come any more, which handle() says. Never waits.
bool Inbox::look() {
  if (!mutex_.try_lock()) return false;
  std::array<fabric::Completion, 16> found;
  const std::size_t count = completions_->poll(found);
  polled_.insert(polled_.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count));
  const bool any = !polled_.empty() || completions_->overrun();
  mutex_.unlock();
  return any;
}

// The same, with the requests that other threads have found.
bool Inbox::look_for_requests() {
  if (look()) return true;
  if (!mutex_.try_lock()) return false;
  const bool any = !requests_.empty();
  mutex_.unlock();
  return any;
}

void Inbox::handle() {
  fabric::check_overrun(*completions_, env_.node(), "an inbox");
  handle_polled();
  if (!closing_.empty()) end_closed();
  datagrams_->recover();
  post_receives();
  if (!requests_.empty()) env_.notify(completions_->watch());  // for a thread that found it locked
}

void Inbox::handle_polled() {
  while (!polled_.empty()) {
    const fabric::Completion completion = polled_.front();
    polled_.pop_front();
    handle(completion);
  }
}

void Inbox::handle(const fabric::Completion& completion) {
  if ((completion.wr_id & kDatagram) != 0) {
    if ((completion.wr_id & kSend) != 0) return;
    const Datagram datagram = datagrams_->take(completion);
    const auto request = read<ConnectRequest>(datagram.bytes);
    if (!request || !datagram.is_from(request->datagrams)) return;
    accept(*request);
    return;
  }
  const auto known = by_qp_.find(completion.qp_num);
  if ((completion.wr_id & kSend) != 0) {
    if (known == by_qp_.end()) return;  // end_closed() frees its slots
    Connection& connection = *connections_.at(known->second);
    const auto slot = static_cast<std::uint32_t>(completion.wr_id & ~kSend);
    const auto at = std::find(connection.sending.begin(), connection.sending.end(), slot);
    if (at != connection.sending.end()) {
      connection.sending.erase(at);
      free_sends_.push_back(slot);
    } else if (slot == kProbe) {
      connection.probing = false;
      --probes_;
    }
    if (completion.status != fabric::Status::kSuccess) close(known->second);
    return;
  }
  Request request;
  const auto header = receives_->take(env_, completion, request.data);
  if (!header || known == by_qp_.end()) return;
  request.id = header->id;
  request.connection = known->second;
  Connection& connection = *connections_.at(known->second);
  request.source = connection.of.node;
  connection.silent_until = 0;
  if (request.id != 0) connection.newest[slot_of(request.id)] = request.id;
  requests_.push_back(std::move(request));
}

Inbox::PeerName Inbox::name_of(const ConnectRequest& request) {
  const std::uint8_t(&gid)[16] = request.connection.gid;
  return {request.node, request.connection.qp_num, std::to_array(gid)};
}

// A peer asks again until it has the reply, and anew when it has been restarted. A node speaks for
// itself alone. Over verbs its number is the one that it names, at the port that the network names.
void Inbox::accept(const ConnectRequest& request) {
  const fabric::QpAddress &end = request.connection, &port = request.datagrams;
  if (request.node >= env_.nodes() || port.node != request.node || end.node != request.node ||
      end.lid != port.lid || std::memcmp(end.gid, port.gid, sizeof end.gid) != 0)
    return;
  close_earlier(request);
  const PeerName peer = name_of(request);
  if (const auto known = by_peer_.find(peer); known != by_peer_.end()) {
    Connection& connection = *connections_.at(known->second);
    if (connection.of.connection.psn == end.psn) return answer(request, connection);
    close(known->second);  // the peer has another queue pair of that number
  }
  auto made = std::make_unique<Connection>();
  made->of = request;
  fabric::QpOptions options = connection_options(env_.device().capabilities(), kShare + 1);
  options.receive_entries = 0;
  try {
    made->qp = env_.device().create_queue_pair(*domain_, *completions_, *completions_, options,
                                               &receives_->queue());
    made->qp->connect(request.connection);
  } catch (const Error&) {
    probe();
    return;  // no queue pair is left, or the address is that of a peer that has ended, or of none
  }
  answer(request, *made);
  by_qp_[made->qp->qp_num()] = by_peer_[peer] = next_connection_;
  connections_[next_connection_++] = std::move(made);
  probe();
}

void Inbox::answer(const ConnectRequest& request, Connection& connection) {
  connection.silent_until = env_.now() + kTimeToConnect;  // from this answer on, if others are lost
  ConnectReply reply;
  reply.asked = request.connection.qp_num;
  reply.max_bytes = options_.max_bytes;
  reply.connection = connection.qp->address();
  datagrams_->send(request.datagrams, bytes_of(reply));
}

// Closes the connections of earlier incarnations of the node, at the same port of the network.
void Inbox::close_earlier(const ConnectRequest& request) {
  std::vector<std::uint64_t> gone;
  for (auto each = by_peer_.lower_bound({request.node, 0, {}});
       each != by_peer_.end() && std::get<0>(each->first) == request.node; ++each) {
    const ConnectRequest& of = connections_.at(each->second)->of;
    if (of.incarnation < request.incarnation &&
        std::memcmp(of.datagrams.gid, request.datagrams.gid, sizeof of.datagrams.gid) == 0)
      gone.push_back(each->second);
  }
  for (const std::uint64_t number : gone) close(number);
}

// Asks the next two peers, by a read of no bytes, which ends with an error when the peer has ended.
// For each new peer two are asked: so the peers that have ended are found while as many come.
void Inbox::probe() {
  for (int i = 0; i < 2 && probes_ < kMostProbes; ++i) {
    auto next = connections_.upper_bound(probed_);
    if (next == connections_.end()) next = connections_.begin();
    if (next == connections_.end()) return;
    probed_ = next->first;
    Connection& connection = *next->second;
    if (connection.probing || !connection.sending.empty() || connection.silent_until > env_.now())
      continue;
    fabric::WorkRequest request;
    request.opcode = fabric::Opcode::kRead;
    request.wr_id = kSend | kProbe;
    connection.probing = connection.qp->post({&request, 1}).accepted == 1;
    probes_ += connection.probing;
  }
}

void Inbox::close(std::uint64_t number) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  by_qp_.erase(connection.qp->qp_num());
  by_peer_.erase(name_of(connection.of));
  connection.qp->fail();
  connection.failed = env_.now();
  closing_.push_back(std::move(found->second));
  connections_.erase(found);
}

void Inbox::end_closed() {
  std::vector<std::unique_ptr<Connection>> ended;
  for (auto& each : closing_) {
    if (fabric::has_flushed(*each->qp, each->failed, env_.now())) ended.push_back(std::move(each));
  }
  if (ended.empty()) return;
  std::erase(closing_, nullptr);
  std::array<fabric::Completion, 16> found;
  while (const std::size_t count = completions_->poll(found))
    polled_.insert(polled_.end(), found.begin(),
                   found.begin() + static_cast<std::ptrdiff_t>(count));
  handle_polled();
  for (const auto& each : ended) {
    each->qp.reset();  // its sends no longer read their slots
    free_sends_.insert(free_sends_.end(), each->sending.begin(), each->sending.end());
    probes_ -= each->probing;
    receives_->replace_lost();
  }
}

std::optional<Request> Inbox::next(Time deadline, Wait wait) {
  for (;;) {
    bool all_posted = false, is_closing = false;
    {
      const std::lock_guard<Mutex> lock(mutex_);
      handle();
      while (!requests_.empty()) {
        Request oldest = std::move(requests_.front());
        requests_.pop_front();
        if (!is_given_up(oldest)) return oldest;
      }
      all_posted = post_receives();
      is_closing = !closing_.empty();
    }
    Time until = all_posted ? deadline : std::min(deadline, env_.now() + kRetry);
    if (is_closing) until = std::min(until, env_.now() + fabric::kTimeToFlush);
    if (!wait([this] { return look_for_requests(); }, until, completions_->watch()) &&
        until == deadline)
      return std::nullopt;
  }
}

void Inbox::reply(const Request& request, std::string_view data, Wait wait) {
  if (request.id == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "the sender of this message waits for no reply; it would by call() in the place of "
                "send()");
  check_length(data, options_.max_bytes, "the reply");
  for (;;) {
    {
      const std::lock_guard<Mutex> lock(mutex_);
      handle();
      const auto found = connections_.find(request.connection);
      if (found == connections_.end() || is_given_up(request)) return;
      if (send_reply(*found->second, request, data)) return;
    }
    // The queue may take no message now, or another task may take the completion that frees a slot.
    wait([this] { return look(); }, env_.now() + kRetry, completions_->watch());
  }
}

// The peer has used the slot of that call for another one.
bool Inbox::is_given_up(const Request& request) const {
  const auto found = connections_.find(request.connection);
  if (request.id == 0 || found == connections_.end()) return false;
  return found->second->newest[slot_of(request.id)] != request.id;
}

// Each peer has its own share of slots and of the queue: one that takes no replies delays no other.
bool Inbox::send_reply(Connection& connection, const Request& request, std::string_view data) {
  if (connection.sending.size() == kShare) return false;
  const auto slot = take_send();
  if (!slot) return false;
  const std::uint32_t max_inline = std::min(kInlineBytes, env_.device().capabilities().max_inline);
  const Slots& slots = *sends_[*slot / kShare];
  if (!post_message(env_, *connection.qp, slots, *slot % kShare, *slot, request.id, data,
                    max_inline))
    return free_sends_.push_back(*slot), false;
  connection.sending.push_back(*slot);
  return true;
}

// Returns a slot, or nothing while kMostSends are in use.
std::optional<std::uint32_t> Inbox::take_send() {
  if (free_sends_.empty()) {
    const auto first = static_cast<std::uint32_t>(sends_.size()) * kShare;
    if (first + kShare > kMostSends) return std::nullopt;
    sends_.push_back(std::make_unique<Slots>(*memory_, kShare, slot_bytes_));
    for (std::uint32_t slot = first; slot < first + kShare; ++slot) free_sends_.push_back(slot);
  }
  const std::uint32_t slot = free_sends_.back();
  free_sends_.pop_back();
  return slot;
}

}  // namespace pyrdma::runtime
