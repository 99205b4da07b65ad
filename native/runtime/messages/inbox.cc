// The inbox of a service.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "runtime/messages/messages.h"
#include "runtime/messages/parts.h"

namespace pyrdma::runtime {

using namespace messages;

struct Inbox::Connection {
  ConnectRequest of;
  std::unique_ptr<fabric::QueuePair> qp;
  std::vector<std::uint32_t> sending;  // slots
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
  completions_ = device.create_completion_queue(2 * (options.depth + Datagrams::kEntries));
  memory_ = std::make_unique<MemoryPool>(env, *domain_, 64 * kKiB);
  const auto slot_bytes = static_cast<std::uint32_t>(sizeof(Header) + options.max_bytes);
  receives_ = std::make_unique<Slots>(*memory_, options.depth, slot_bytes);
  sends_ = std::make_unique<Slots>(*memory_, options.depth, slot_bytes);
  shared_ = device.create_shared_receive_queue(*domain_, options.depth, 1);
  for (std::uint32_t slot = 0; slot < options.depth; ++slot) {
    free_receives_.push_back(slot);
    free_sends_.push_back(slot);
  }
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
  while (!free_receives_.empty()) {
    const std::uint64_t slot = free_receives_.back();
    const fabric::Sge sge = receives_->sge(slot, receives_->slot_bytes);
    const fabric::ReceiveRequest request{slot, &sge, 1};
    if (shared_->post_receive({&request, 1}).accepted != 1) break;
    free_receives_.pop_back();
  }
  return datagrams_->post_receives() && free_receives_.empty();
}

// Moves completions from the NIC to this process; returns true if there are any to handle. Never
// waits.
bool Inbox::look() {
  if (!mutex_.try_lock()) return false;
  std::array<fabric::Completion, 16> found;
  const std::size_t count = completions_->poll(found);
  polled_.insert(polled_.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count));
  const bool any = !polled_.empty();
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
  while (!polled_.empty()) {
    const fabric::Completion completion = polled_.front();
    polled_.pop_front();
    handle(completion);
  }
  datagrams_->recover();
  post_receives();
  if (!requests_.empty()) env_.notify(completions_->watch());  // for a thread that found it locked
}

void Inbox::handle(const fabric::Completion& completion) {
  if ((completion.wr_id & kDatagram) != 0) {
    if ((completion.wr_id & kSend) != 0) return;
    if (const auto request = read<ConnectRequest>(datagrams_->take(completion))) accept(*request);
    return;
  }
  const auto known = by_qp_.find(completion.qp_num);
  if ((completion.wr_id & kSend) != 0) {
    if (known == by_qp_.end()) return;  // close() has freed its slots
    Connection& connection = *connections_.at(known->second);
    const auto slot = static_cast<std::uint32_t>(completion.wr_id & ~kSend);
    const auto at = std::find(connection.sending.begin(), connection.sending.end(), slot);
    if (at != connection.sending.end()) {
      connection.sending.erase(at);
      free_sends_.push_back(slot);
    }
    if (completion.status != fabric::Status::kSuccess) close(known->second);
    return;
  }
  if (completion.status == fabric::Status::kSuccess && known != by_qp_.end()) {
    Request request;
    const auto header =
        read_message(env_, *receives_, completion.wr_id, completion.byte_count, request.data);
    if (header) {
      request.id = header->id;
      request.connection = known->second;
      request.source = connections_.at(known->second)->of.node;
      requests_.push_back(std::move(request));
    }
  }
  free_receives_.push_back(completion.wr_id);
}

// A peer asks again until it has the reply, and anew when it has been restarted.
void Inbox::accept(const ConnectRequest& request) {
  if (request.node >= env_.nodes()) return;
  std::vector<std::uint64_t> gone;
  Connection* known = nullptr;
  for (auto& [number, connection] : connections_) {
    const ConnectRequest& of = connection->of;
    if (of.node != request.node) continue;
    if (of.incarnation < request.incarnation)
      gone.push_back(number);
    else if (of.connection.qp_num == request.connection.qp_num &&
             of.connection.psn == request.connection.psn)
      known = connection.get();
  }
  for (const std::uint64_t number : gone) close(number);
  if (known == nullptr) {
    auto made = std::make_unique<Connection>();
    made->of = request;
    fabric::QpOptions options =
        connection_options(env_.device().capabilities(), std::min(options_.depth, 64U));
    options.receive_entries = 0;
    try {
      made->qp = env_.device().create_queue_pair(*domain_, *completions_, *completions_, options,
                                                 shared_.get());
      made->qp->connect(request.connection);
    } catch (const Error&) {
      return;  // no queue pair is left, or the address is that of a peer that has ended, or of none
    }
    known = made.get();
    by_qp_[made->qp->qp_num()] = next_connection_;
    connections_[next_connection_++] = std::move(made);
  }
  ConnectReply reply;
  reply.asked = request.connection.qp_num;
  reply.max_bytes = options_.max_bytes;
  reply.connection = known->qp->address();
  datagrams_->send(request.datagrams, bytes_of(reply));
}

void Inbox::close(std::uint64_t number) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  by_qp_.erase(found->second->qp->qp_num());
  const std::vector<std::uint32_t> sending = std::move(found->second->sending);
  const std::unique_ptr<Connection> closed = std::move(found->second);
  connections_.erase(found);
  closed->qp.reset();  // its sends no longer read their slots
  free_sends_.insert(free_sends_.end(), sending.begin(), sending.end());
}

std::optional<Request> Inbox::next(Time deadline, Wait wait) {
  for (;;) {
    bool all_posted = false;
    {
      const std::lock_guard<Mutex> lock(mutex_);
      handle();
      if (!requests_.empty()) {
        Request oldest = std::move(requests_.front());
        requests_.pop_front();
        return oldest;
      }
      all_posted = post_receives();
    }
    const Time until = all_posted ? deadline : std::min(deadline, env_.now() + kRetry);
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
      if (found == connections_.end()) return;  // the caller has ended
      Connection& connection = *found->second;
      if (!free_sends_.empty()) {
        const std::uint32_t slot = free_sends_.back();
        const std::uint32_t max_inline =
            std::min(kInlineBytes, env_.device().capabilities().max_inline);
        if (post_message(env_, *connection.qp, *sends_, slot, request.id, data, max_inline)) {
          free_sends_.pop_back();
          connection.sending.push_back(slot);
          return;
        }
      }
    }
    // The queue may take no message now, or another task may take the completion that frees a slot.
    wait([this] { return look(); }, env_.now() + kRetry, completions_->watch());
  }
}

}  // namespace pyrdma::runtime
