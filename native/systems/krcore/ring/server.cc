#include "systems/krcore/ring/server.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace pyrdma::krcore::ring {

using fabric::Status;

namespace {

constexpr std::size_t kBatch = 16;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "krcore: " + what);
}

/// The application may write while the daemon reads: each field is read once.
template <class T>
T once(const T& field) {
  return *const_cast<const volatile T*>(&field);
}

}  // namespace

Server::Server(Service& service, Shared& shared, std::function<void(const Registration&)> give)
    : app_(service), env_(service.env()), shared_(shared), give_(std::move(give)) {
  Header& header = shared.header;
  header.version = kVersion;
  header.requests = kRequests;
  header.completions = kCompletions;
  header.node = env_.node();
  header.nodes = env_.nodes();
  header.magic = kMagic;
}

bool Server::serve() {
  const bool has_call = take_call();
  if (has_call) carry_out(call_);
  return publish() || has_call;
}

bool Server::take_call() {
  call_.clear();
  const auto turn_of = [](std::uint64_t position) {
    return static_cast<std::uint32_t>(position / kRequests + 1);
  };
  if (shared_.requests[position_ % kRequests].turn.load(std::memory_order_acquire) !=
      turn_of(position_))
    return false;
  env_.charge(Cost::kLineTransfer);
  while (call_.size() < kRequests) {
    const RequestSlot& slot = shared_.requests[position_ % kRequests];
    if (slot.turn.load(std::memory_order_acquire) != turn_of(position_)) break;
    ++position_;
    Request& request = call_.emplace_back();
    request.command = static_cast<Command>(once(slot.command));
    request.opcode = static_cast<fabric::Opcode>(once(slot.opcode));
    request.work_flags = once(slot.work_flags);
    request.is_last = (once(slot.flags) & kLast) != 0;
    request.queue = once(slot.queue);
    request.length = once(slot.length);
    request.wr_id = once(slot.wr_id);
    request.local_addr = once(slot.local_addr);
    request.lkey = once(slot.lkey);
    request.rkey = once(slot.rkey);
    request.remote_addr = once(slot.remote_addr);
    request.first = once(slot.first);
    request.second = once(slot.second);
    if (request.is_last) break;
  }
  return true;
}

Server::OwnQueue& Server::own(std::uint32_t queue) {
  const auto known = queues_.find(queue);
  if (known == queues_.end()) {
    ++malformed_;
    refuse("queue " + std::to_string(queue) +
           " is none of the application's; create one, or use what a message gave as its reply");
  }
  return known->second;
}

void Server::carry_out(std::span<const Request> call) {
  ++calls_;
  shared_.header.error = 0;
  try {
    const Request& first = call.front();
    const bool is_whole =
        call.back().is_last && std::ranges::all_of(call, [&](const Request& each) {
          return each.command == first.command && each.queue == first.queue;
        });
    const bool may_differ = first.command == Command::kConnect;
    const bool is_list = may_differ || first.command == Command::kPush ||
                         first.command == Command::kReceive || first.command == Command::kNothing;
    if ((!is_whole && !(may_differ && call.back().is_last)) || (call.size() != 1 && !is_list)) {
      ++malformed_;
      refuse("a call has slots of several calls, or no end; write its first slot last");
    }
    switch (first.command) {
      case Command::kNothing:
        return answer({});
      case Command::kCreate: {
        VqpOptions options;
        if (first.first == 0 || first.first > 65536 || first.second == 0 || first.second > 65536)
          refuse("a queue of " + std::to_string(first.first) + " receives and " +
                 std::to_string(first.second) + " sends is out of bounds; give 1 to 65536");
        options.receive_entries = static_cast<std::uint32_t>(first.first);
        options.send_entries = static_cast<std::uint32_t>(first.second);
        const std::uint32_t queue = app_.create_queue(options).number();
        queues_[queue];
        return answer(std::array<std::uint64_t, 1>{queue});
      }
      case Command::kDestroy: {
        const OwnQueue ended = own(first.queue);
        signaled_ -= ended.signaled;
        receives_ -= ended.receives;
        app_.destroy(VqpId::of(first.queue));
        queues_.erase(first.queue);
        return answer({});
      }
      case Command::kRegister: {
        if (first.second > fabric::kAllAccess)
          refuse("access " + std::to_string(first.second) + " has unknown rights");
        if (first.first == 0) refuse("a region has 0 bytes; give at least 1");
        const Registration made =
            app_.reg_mr(first.first, static_cast<std::uint32_t>(first.second) | fabric::kOwnFile);
        regions_[made.key] = made;
        give_(made);
        return answer(std::array<std::uint64_t, 3>{made.addr, made.bytes, made.key});
      }
      case Command::kDeregister: {
        const auto known = regions_.find(first.lkey);
        if (known == regions_.end()) refuse("the key is none of the application's regions");
        app_.dereg_mr(known->second);
        regions_.erase(known);
        return answer({});
      }
      case Command::kBind:
        own(first.queue);
        app_.bind(VqpId::of(first.queue),
                  static_cast<std::uint32_t>(std::min<std::uint64_t>(first.first, 0xffff'ffff)));
        return answer({});
      case Command::kConnect:
        targets_.clear();
        for (const Request& each : call) {
          own(each.queue);
          targets_.push_back(
              {VqpId::of(each.queue), each.rkey, static_cast<std::uint32_t>(each.first)});
        }
        app_.connect(targets_);
        return answer({});
      case Command::kPush:
        return push(call);
      case Command::kReceive:
        return receive(call);
      case Command::kRefusal:
        own(first.queue);
        return answer(std::array<std::uint64_t, 1>{
            static_cast<std::uint64_t>(app_.service().refusal(VqpId::of(first.queue)))});
      case Command::kCount:
        break;
    }
    ++malformed_;
    refuse("command " + std::to_string(static_cast<unsigned>(first.command)) + " is unknown");
  } catch (const Error& error) {
    Header& header = shared_.header;
    header.error = 1 + static_cast<std::uint32_t>(error.code());
    std::memset(header.text, 0, sizeof header.text);
    std::strncpy(header.text, error.what(), sizeof header.text - 1);
    answer({});
  }
}

void Server::answer(std::span<const std::uint64_t> values) {
  std::ranges::copy(values, shared_.header.values);
  shared_.header.result_of.store(calls_, std::memory_order_release);
}

void Server::push(std::span<const Request> call) {
  OwnQueue& queue = own(call.front().queue);
  list_.clear();
  sges_.clear();
  sges_.reserve(call.size());
  std::uint32_t signaled = 0;
  for (const Request& each : call) {
    fabric::WorkRequest& request = list_.emplace_back();
    request.wr_id = each.wr_id;
    request.opcode = each.opcode;
    // The payload lies in registered memory, so nothing is inline.
    request.flags = static_cast<std::uint8_t>(each.work_flags & ~fabric::kInline);
    request.remote_addr = each.remote_addr;
    request.rkey = each.rkey;
    request.compare_add = each.first;
    request.swap = each.second;
    request.immediate = static_cast<std::uint32_t>(each.second);
    if (each.length != 0) {
      sges_.push_back({each.local_addr, each.length, each.lkey});
      request.sges = &sges_.back();
      request.sge_count = 1;
    }
    signaled += (request.flags & fabric::kSignaled) != 0 ? 1 : 0;
  }
  const PushResult pushed = app_.push(VqpId::of(call.front().queue), list_);
  if (pushed.error == fabric::PostError::kNone) {
    queue.signaled += signaled;
    signaled_ += signaled;
    // What has ended already comes with the answer, and its owner need not wait a second time.
    if (queue.signaled != 0) publish_completions(call.front().queue, queue);
  }
  answer(std::array{std::uint64_t{pushed.accepted}, static_cast<std::uint64_t>(pushed.error),
                    static_cast<std::uint64_t>(pushed.status)});
}

void Server::receive(std::span<const Request> call) {
  OwnQueue& queue = own(call.front().queue);
  receive_list_.clear();
  sges_.clear();
  sges_.reserve(call.size());
  for (const Request& each : call) {
    fabric::ReceiveRequest& request = receive_list_.emplace_back();
    request.wr_id = each.wr_id;
    sges_.push_back({each.local_addr, each.length, each.lkey});
    request.sges = &sges_.back();
    request.sge_count = 1;
  }
  const fabric::PostResult posted = app_.post_receive(VqpId::of(call.front().queue), receive_list_);
  queue.receives += posted.accepted;
  receives_ += posted.accepted;
  answer(std::array{std::uint64_t{posted.accepted}, static_cast<std::uint64_t>(posted.error)});
}

std::uint64_t Server::room() const {
  const std::uint64_t taken = shared_.header.taken.load(std::memory_order_acquire);
  const std::uint64_t kept = published_ - taken;
  // What the application claims may be anything.
  return kept > kCompletions ? 0 : kCompletions - kept;
}

CompletionSlot& Server::next_slot() {
  CompletionSlot& slot = shared_.completions[published_ % kCompletions];
  slot.is_message = slot.has_immediate = 0;
  slot.bytes = slot.immediate = slot.from = slot.reply = 0;
  return slot;
}

void Server::publish_slot(CompletionSlot& slot) {
  slot.turn.store(static_cast<std::uint32_t>(published_++ / kCompletions + 1),
                  std::memory_order_release);
}

void Server::publish_completions(std::uint32_t number, OwnQueue& queue) {
  std::array<fabric::Completion, kBatch> done;
  const VqpId id = VqpId::of(number);
  const std::size_t most = std::min<std::uint64_t>(kBatch, room());
  const std::size_t count = most == 0 ? 0 : app_.service().poll(id, std::span(done).first(most));
  for (const fabric::Completion& wc : std::span(done).first(count)) {
    CompletionSlot& slot = next_slot();
    slot.queue = number;
    slot.status = static_cast<std::uint8_t>(wc.status);
    slot.opcode = static_cast<std::uint8_t>(wc.opcode);
    slot.wr_id = wc.wr_id;
    publish_slot(slot);
  }
  const auto succeeded = static_cast<std::uint32_t>(
      std::ranges::count(std::span(done).first(count), Status::kSuccess,
                         [](const fabric::Completion& wc) { return wc.status; }));
  // Requests without a signal have errors, too: a failed queue is polled until it is empty.
  const bool is_over = count == 0 && most != 0 && app_.service().state(id) == VqpState::kError;
  const std::uint32_t ended = is_over ? queue.signaled : succeeded;
  queue.signaled -= ended;
  signaled_ -= ended;
}

void Server::publish_messages(std::uint32_t number, OwnQueue& queue,
                              std::vector<std::uint32_t>& replies) {
  std::array<Message, kBatch> messages;
  const std::size_t most = std::min<std::uint64_t>(kBatch, room());
  const std::size_t count =
      most == 0 ? 0
                : app_.service().pop_messages(VqpId::of(number), std::span(messages).first(most));
  for (const Message& message : std::span(messages).first(count)) {
    CompletionSlot& slot = next_slot();
    slot.queue = number;
    slot.is_message = 1;
    slot.status = static_cast<std::uint8_t>(message.status);
    slot.opcode = static_cast<std::uint8_t>(message.opcode);
    slot.has_immediate = message.has_immediate ? 1 : 0;
    slot.immediate = message.immediate;
    slot.bytes = message.bytes;
    slot.wr_id = message.wr_id;
    slot.from = message.from;
    slot.reply = message.reply.number();
    if (message.reply) replies.push_back(message.reply.number());
    publish_slot(slot);
  }
  queue.receives -= static_cast<std::uint32_t>(count);
  receives_ -= count;
}

bool Server::publish() {
  if (!awaits()) return false;
  const std::uint64_t before = published_;
  std::vector<std::uint32_t> replies;
  for (auto& [number, queue] : queues_) {
    if (queue.signaled != 0) publish_completions(number, queue);
    if (queue.receives != 0) publish_messages(number, queue, replies);
  }
  for (const std::uint32_t reply : replies) queues_[reply];
  return published_ != before;
}

}  // namespace pyrdma::krcore::ring
