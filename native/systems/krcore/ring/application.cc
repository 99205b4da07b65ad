#include "systems/krcore/ring/application.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "base/error.h"

namespace pyrdma::krcore::ring {

namespace {

constexpr Time kLookAfterDaemon = 100 * kMicrosecond;

std::uint32_t turn_at(std::uint64_t position, std::uint32_t slots) {
  return static_cast<std::uint32_t>(position / slots + 1);
}

}  // namespace

Application::Application(Env& env, Shared& shared, Link& link)
    : env_(env), shared_(shared), link_(link), call_mutex_(env), arrived_mutex_(env) {
  const Header& header = shared.header;
  if (header.magic == kMagic && header.version == kVersion && header.requests == kRequests &&
      header.completions == kCompletions)
    return;
  throw Error(ErrorCode::kUnavailable, "krcore: the daemon's ring has version " +
                                           std::to_string(header.version) +
                                           ", and this library has " + std::to_string(kVersion) +
                                           "; install one version of pyrdma for both");
}

void Application::check_daemon() {
  if (link_.has_daemon()) return;
  throw Error(ErrorCode::kUnavailable,
              "krcore: the daemon of the node has ended, and all queues and regions with it; start "
              "it again and attach anew",
              false);
}

Application::Values Application::call(
    std::uint32_t count, const std::function<void(RequestSlot&, std::uint32_t)>& fill) {
  const std::lock_guard<Mutex> lock(call_mutex_);
  for (std::uint32_t i = count; i-- > 0;) {
    const std::uint64_t position = position_ + i;
    RequestSlot& slot = shared_.requests[position % kRequests];
    slot.opcode = slot.work_flags = 0;
    slot.queue = slot.length = slot.lkey = slot.rkey = 0;
    slot.wr_id = slot.local_addr = slot.remote_addr = slot.first = slot.second = 0;
    slot.flags = i + 1 == count ? kLast : 0;
    fill(slot, i);
    slot.turn.store(turn_at(position, kRequests), std::memory_order_release);
  }
  position_ += count;
  ++calls_;
  // Either the daemon sees the call before it sleeps, or this sees that it sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (shared_.header.daemon_sleeps.load(std::memory_order_relaxed) != 0) link_.ring_doorbell();
  const auto is_answered = [this] {
    return shared_.header.result_of.load(std::memory_order_acquire) == calls_;
  };
  while (!env_.poll_until(is_answered, env_.now() + kLookAfterDaemon)) check_daemon();
  env_.charge(Cost::kLineTransfer);
  const Header& header = shared_.header;
  if (const std::uint32_t error = header.error; error != 0) {
    const std::string text(header.text, strnlen(header.text, kTextBytes));
    const auto code = static_cast<ErrorCode>(
        std::min<std::uint32_t>(error - 1, static_cast<std::uint32_t>(ErrorCode::kInternal)));
    throw Error(code, text);
  }
  Values values;
  std::ranges::copy(header.values, values.begin());
  return values;
}

Application::Values Application::call(Command command, Queue queue, std::uint64_t first,
                                      std::uint64_t second) {
  return call(1, [&](RequestSlot& slot, std::uint32_t) {
    slot.command = static_cast<std::uint8_t>(command);
    slot.queue = queue.number();
    slot.first = first;
    slot.second = second;
  });
}

void Application::nothing() { call(Command::kNothing, {}); }

void Application::nothing(std::uint32_t slots) {
  call(std::min(slots, kRequests), [](RequestSlot& slot, std::uint32_t) {
    slot.command = static_cast<std::uint8_t>(Command::kNothing);
  });
}

Queue Application::create_queue(VqpOptions options) {
  return VqpId::of(static_cast<std::uint32_t>(
      call(Command::kCreate, {}, options.receive_entries, options.send_entries)[0]));
}

void Application::destroy(Queue queue) {
  call(Command::kDestroy, queue);
  const std::lock_guard<Mutex> lock(arrived_mutex_);
  take_arrived();
  arrived_.erase(queue.number());
}

Registration Application::reg_mr(std::uint64_t bytes, std::uint32_t access) {
  const Values made = call(Command::kRegister, {}, bytes, access);
  Registration region;
  region.addr = made[0];
  region.bytes = made[1];
  region.key = static_cast<std::uint32_t>(made[2]);
  region.data = link_.take_memory(region.key, region.bytes);
  if (region.data == nullptr)
    throw Error(ErrorCode::kUnavailable, "krcore: the daemon gave no memory for a region");
  return region;
}

void Application::dereg_mr(const Registration& region) {
  call(1, [&](RequestSlot& slot, std::uint32_t) {
    slot.command = static_cast<std::uint8_t>(Command::kDeregister);
    slot.lkey = region.key;
  });
  link_.give_back(region.key);
}

void Application::bind(Queue queue, std::uint32_t port) { call(Command::kBind, queue, port); }

void Application::connect(Queue queue, NodeId node, std::uint32_t port) {
  const App::Target target{queue, node, port};
  connect({&target, 1});
}

void Application::connect(std::span<const App::Target> targets) {
  for (; !targets.empty();
       targets = targets.subspan(std::min<std::size_t>(targets.size(), kRequests))) {
    const auto some = targets.first(std::min<std::size_t>(targets.size(), kRequests));
    call(static_cast<std::uint32_t>(some.size()), [&](RequestSlot& slot, std::uint32_t i) {
      slot.command = static_cast<std::uint8_t>(Command::kConnect);
      slot.queue = some[i].queue.number();
      slot.rkey = some[i].node;
      slot.first = some[i].port;
    });
  }
}

PushResult Application::push(Queue queue, std::span<const fabric::WorkRequest> list) {
  if (list.empty()) return {};
  if (list.size() > kRequests)
    return {0, fabric::PostError::kInvalid, fabric::Status::kLocalQpOperation};
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].sge_count > 1)
      return {static_cast<std::uint32_t>(i), fabric::PostError::kInvalid,
              fabric::Status::kLocalQpOperation};
  const Values values =
      call(static_cast<std::uint32_t>(list.size()), [&](RequestSlot& slot, std::uint32_t i) {
        const fabric::WorkRequest& request = list[i];
        const bool has_immediate = request.opcode == fabric::Opcode::kSendImm ||
                                   request.opcode == fabric::Opcode::kWriteImm;
        slot.command = static_cast<std::uint8_t>(Command::kPush);
        slot.opcode = static_cast<std::uint8_t>(request.opcode);
        slot.work_flags = request.flags;
        slot.queue = queue.number();
        slot.wr_id = request.wr_id;
        if (request.sge_count == 1) {
          slot.local_addr = request.sges->addr;
          slot.length = request.sges->length;
          slot.lkey = request.sges->lkey;
        }
        slot.rkey = request.rkey;
        slot.remote_addr = request.remote_addr;
        slot.first = request.compare_add;
        slot.second = has_immediate ? request.immediate : request.swap;
      });
  return {static_cast<std::uint32_t>(values[0]), static_cast<fabric::PostError>(values[1]),
          static_cast<fabric::Status>(values[2])};
}

fabric::PostResult Application::post_receive(Queue queue,
                                             std::span<const fabric::ReceiveRequest> requests) {
  if (requests.empty()) return {};
  if (requests.size() > kRequests ||
      std::ranges::any_of(requests, [](const auto& each) { return each.sge_count != 1; }))
    return {0, fabric::PostError::kInvalid};
  const Values values =
      call(static_cast<std::uint32_t>(requests.size()), [&](RequestSlot& slot, std::uint32_t i) {
        slot.command = static_cast<std::uint8_t>(Command::kReceive);
        slot.queue = queue.number();
        slot.wr_id = requests[i].wr_id;
        slot.local_addr = requests[i].sges->addr;
        slot.length = requests[i].sges->length;
        slot.lkey = requests[i].sges->lkey;
      });
  return {static_cast<std::uint32_t>(values[0]), static_cast<fabric::PostError>(values[1])};
}

// Sorts what the daemon has published. The caller holds the lock.
void Application::take_arrived() {
  const std::uint64_t before = taken_;
  for (;;) {
    const CompletionSlot& slot = shared_.completions[taken_ % kCompletions];
    if (slot.turn.load(std::memory_order_acquire) != turn_at(taken_, kCompletions)) break;
    ++taken_;
    env_.charge(Cost::kLineTransfer);
    Arrived& arrived = arrived_[slot.queue];
    if (slot.is_message != 0) {
      Message& message = arrived.messages.emplace_back();
      message.reply = VqpId::of(slot.reply);
      message.wr_id = slot.wr_id;
      message.bytes = slot.bytes;
      message.immediate = slot.immediate;
      message.has_immediate = slot.has_immediate != 0;
      message.opcode = static_cast<fabric::Opcode>(slot.opcode);
      message.status = static_cast<fabric::Status>(slot.status);
      message.from = slot.from;
    } else {
      fabric::Completion& wc = arrived.completions.emplace_back();
      wc.wr_id = slot.wr_id;
      wc.status = static_cast<fabric::Status>(slot.status);
      wc.opcode = static_cast<fabric::Opcode>(slot.opcode);
      wc.qp_num = slot.queue;
    }
  }
  if (taken_ != before) shared_.header.taken.store(taken_, std::memory_order_release);
}

namespace {

template <class T>
std::size_t move_front(std::deque<T>& from, std::span<T> out) {
  const std::size_t count = std::min(from.size(), out.size());
  std::move(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count), out.begin());
  from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

}  // namespace

std::size_t Application::pop(Queue queue, std::span<fabric::Completion> out) {
  const std::lock_guard<Mutex> lock(arrived_mutex_);
  take_arrived();
  return move_front(arrived_[queue.number()].completions, out);
}

std::size_t Application::pop_messages(Queue queue, std::span<Message> out) {
  const std::lock_guard<Mutex> lock(arrived_mutex_);
  take_arrived();
  return move_front(arrived_[queue.number()].messages, out);
}

template <class Take>
std::size_t Application::wait_for(std::size_t wanted, Time deadline, const Take& take) {
  std::size_t count = 0;
  const auto has_all = [&] {
    count += take(count);
    return count >= wanted;
  };
  for (;;) {
    const Time now = env_.now();
    const Time until = deadline - now < kLookAfterDaemon ? deadline : now + kLookAfterDaemon;
    if (env_.poll_until(has_all, until) || env_.now() >= deadline) return count;
    check_daemon();
  }
}

std::size_t Application::wait(Queue queue, std::span<fabric::Completion> out, Time deadline) {
  return wait_for(out.size(), deadline,
                  [&](std::size_t count) { return pop(queue, out.subspan(count)); });
}

std::size_t Application::wait_messages(Queue queue, std::span<Message> out, Time deadline) {
  return wait_for(1, deadline,
                  [&](std::size_t count) { return pop_messages(queue, out.subspan(count)); });
}

fabric::Status Application::refusal(Queue queue) {
  return static_cast<fabric::Status>(call(Command::kRefusal, queue)[0]);
}

}  // namespace pyrdma::krcore::ring
