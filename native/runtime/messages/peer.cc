// The peer of a service.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "fabric/overrun.h"
#include "runtime/messages/messages.h"
#include "runtime/messages/parts.h"

namespace pyrdma::runtime {

using namespace messages;

struct Peer::Slot {
  std::atomic<std::uint64_t> id{0};  // of the call that waits; 0: none
  bool sending = false;
  std::optional<std::string> reply;
  bool is_free() const { return id == 0 && !sending; }
};

Peer::Peer(Env& env, const std::string& name, NodeId node, Time deadline, Wait wait)
    : env_(env), name_(name), node_(node), mutex_(env), slots_(kWindow) {
  if (node >= env.nodes())
    throw Error(ErrorCode::kInvalidArgument, "node is " + std::to_string(node) +
                                                 "; the nodes are 0 to " +
                                                 std::to_string(env.nodes() - 1));
  fabric::Device& device = env.device();
  need(device);
  domain_ = device.create_protection_domain();
  completions_ = device.create_completion_queue(2 * (kWindow + Datagrams::kEntries));
  memory_ = std::make_unique<MemoryPool>(env, *domain_, 64 * kKiB);
  datagrams_ = std::make_unique<Datagrams>(env, *domain_, *completions_, *memory_);
  qp_ = device.create_queue_pair(*domain_, *completions_, *completions_,
                                 connection_options(device.capabilities(), kWindow));

  // The node may not have bound its inbox yet, or bind it anew after a restart.
  Watch none;
  std::optional<std::uint32_t> incarnation;
  std::uint32_t next = 0;
  Address inbox{};
  for (Time pause = 20 * kMicrosecond;; pause = std::min(2 * pause, 5 * kMillisecond)) {
    while (const auto found = device.rendezvous().find(address_key(name, node, next))) {
      if (found->size() == sizeof kNeverBound) {
        ++next;
        continue;
      }
      if (found->size() != sizeof inbox)
        throw Error(ErrorCode::kInternal, "the address of inbox " + name + " is damaged");
      std::memcpy(&inbox, found->data(), sizeof inbox);
      incarnation = next++;
    }
    const Time now = env.now();
    if (now >= deadline)
      throw Error(ErrorCode::kTimeout,
                  "node " + std::to_string(node) +
                      (incarnation ? " does not answer at '" : " has not bound '") +
                      name.substr(name.rfind('/') + 1) +
                      (incarnation ? "': it has ended, or no task of it waits for requests"
                                   : "': let a task of it await node.bind, or give a longer "
                                     "timeout_s"))
          .blaming({node});
    const Time until = std::min(deadline, now + pause);
    if (!incarnation)
      wait([] { return false; }, until, none);
    else if (ask(inbox.datagrams, std::min(deadline, now + 10 * pause), wait))
      break;
  }
  max_bytes_ = std::min(answer_->max_bytes, kMaxMessageBytes);
  const auto slot_bytes = static_cast<std::uint32_t>(sizeof(Header) + max_bytes_);
  receives_ = std::make_unique<Slots>(*memory_, kWindow, slot_bytes);
  sends_ = std::make_unique<Slots>(*memory_, kWindow, slot_bytes);
  if (qp_->state() != fabric::QpState::kReset)
    throw Error(ErrorCode::kUnavailable, "the device of node " + std::to_string(env.node()) +
                                             " has failed during a connect; connect again");
  qp_->connect(answer_->connection);
  for (std::uint64_t slot = 0; slot < kWindow; ++slot) free_receives_.push_back(slot);
  post_receives();
}

Peer::~Peer() = default;

// Asks for the connection once; returns false after `until`.
bool Peer::ask(const fabric::QpAddress& inbox, Time until, Wait wait) {
  ConnectRequest request;
  request.node = env_.node();
  request.incarnation = env_.incarnation();
  request.connection = qp_->address();
  request.datagrams = datagrams_->address();
  asked_ = inbox;
  datagrams_->recover();
  datagrams_->post_receives();
  datagrams_->send(inbox, bytes_of(request));
  const auto has_come = [this] { return answer_.has_value(); };
  const bool came = wait([&] { return look(has_come); }, until, completions_->watch());
  check();
  return came;
}

// A stranger's datagram is dropped, and takes no answer with it that comes at the same time.
void Peer::take_answer(const Datagram& datagram) {
  const auto answer = read<ConnectReply>(datagram.bytes);
  if (answer && datagram.is_from(asked_) && answer->asked == qp_->qp_num() &&
      answer->connection.node == node_)
    answer_ = *answer;
}

// Returns false if some receives are not posted. Without a connection there are none.
bool Peer::post_receives() {
  while (!free_receives_.empty() && error_ == fabric::Status::kSuccess) {
    const std::uint64_t slot = free_receives_.back();
    if (!qp_->receive(receives_->sge(slot, receives_->slot_bytes), slot)) return false;
    free_receives_.pop_back();
  }
  return true;
}

// Returns the end of a wait: `deadline`, or earlier if receives are to be posted again.
Time Peer::until(Time deadline) {
  const std::lock_guard<Mutex> lock(mutex_);
  return post_receives() ? deadline : std::min(deadline, env_.now() + kRetry);
}

// Handles completions, then returns `found()`, under the lock. Also true when no completion can
// come any more, which check() says. Never waits.
bool Peer::look(FunctionRef<bool()> found) {
  if (!mutex_.try_lock()) return false;
  std::array<fabric::Completion, 16> polled;
  const std::size_t count = completions_->poll(polled);
  for (std::size_t i = 0; i < count; ++i) handle(polled[i]);
  post_receives();
  datagrams_->post_receives();
  const bool result = found() || (count == 0 && completions_->overrun());
  mutex_.unlock();
  if (count != 0) env_.notify(completions_->watch());  // for a thread that found it locked
  return result;
}

void Peer::handle(const fabric::Completion& completion) {
  if ((completion.wr_id & kDatagram) != 0) {
    if ((completion.wr_id & kSend) == 0) take_answer(datagrams_->take(completion));
    return;
  }
  if (completion.status != fabric::Status::kSuccess) {
    if (error_ == fabric::Status::kSuccess) error_ = completion.status;
    return;
  }
  if ((completion.wr_id & kSend) != 0) {
    slots_[(completion.wr_id & ~kSend) % kWindow].sending = false;
    return;
  }
  if (completion.wr_id >= kWindow) return;
  std::string data;
  const auto header = read_message(env_, *receives_, completion.wr_id, completion.byte_count, data);
  if (header) {
    Slot& slot = slots_[slot_of(header->id)];
    // A reply to a call that was given up has no slot any more.
    if (slot.id != 0 && slot.id == header->id) slot.reply = std::move(data);
  }
  free_receives_.push_back(completion.wr_id);
}

void Peer::check() const {
  fabric::check_overrun(*completions_, env_.node(), "the connection to a node's inbox");
  if (error_ == fabric::Status::kSuccess) return;
  throw Error(ErrorCode::kUnavailable,
              "the connection to node " + std::to_string(node_) + " has failed (" +
                  fabric::to_string(error_) +
                  "): the node has ended, or is cut off; connect again when it is back",
              false)
      .blaming({node_});
}

// Returns the slot of the posted message.
std::uint64_t Peer::post(std::string_view data, bool wants_reply, Time deadline, Wait wait) {
  check_length(data, max_bytes_, "the request");
  const std::uint32_t max_inline = std::min(kInlineBytes, env_.device().capabilities().max_inline);
  for (;;) {
    bool refused = false;
    {
      const std::lock_guard<Mutex> lock(mutex_);
      check();
      for (std::uint64_t i = 0; i < slots_.size(); ++i) {
        Slot& slot = slots_[i];
        if (!slot.is_free()) continue;
        const std::uint64_t id = wants_reply ? id_of(next_call_, i) : 0;
        if (!post_message(env_, *qp_, *sends_, i, i, id, data, max_inline)) {
          refused = true;
          break;
        }
        next_call_ += wants_reply;
        slot.id = id;
        slot.sending = true;
        slot.reply.reset();
        return i;
      }
    }
    const auto has_room = [this] {
      return error_ != fabric::Status::kSuccess ||
             std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.is_free(); });
    };
    if (refused) {  // the queue takes no message now
      Watch none;
      wait([] { return false; }, std::min(deadline, env_.now() + kRetry), none);
      if (env_.now() < deadline) continue;
    } else if (wait([&] { return look(has_room); }, deadline, completions_->watch())) {
      continue;
    }
    throw Error(ErrorCode::kTimeout, "no room for a message to node " + std::to_string(node_) +
                                         ": " + std::to_string(kWindow) + " are under way")
        .blaming({node_});
  }
}

std::string Peer::call(std::string_view data, Time deadline, Wait wait) {
  const std::uint64_t at = post(data, true, deadline, wait);
  Slot& slot = slots_[at];
  struct Ending {
    Peer& peer;
    Slot& slot;
    ~Ending() {
      slot.id = 0;
      peer.env_.notify(peer.completions_->watch());  // for threads that wait for room
    }
  } ending{*this, slot};
  const auto has_ended = [&] {
    return slot.reply.has_value() || error_ != fabric::Status::kSuccess;
  };
  for (Time end = until(deadline);
       !wait([&] { return look(has_ended); }, end, completions_->watch()) && end != deadline;)
    end = until(deadline);
  const std::lock_guard<Mutex> lock(mutex_);
  if (slot.reply) return std::move(*slot.reply);
  check();
  throw Error(ErrorCode::kTimeout,
              "node " + std::to_string(node_) +
                  " has not replied in time; the request may have been served",
              false)
      .blaming({node_});
}

void Peer::send(std::string_view data, Time deadline, Wait wait) {
  post(data, false, deadline, wait);
}

}  // namespace pyrdma::runtime
