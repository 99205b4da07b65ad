#include "systems/tailwind/rpc/transport.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/error.h"
#include "fabric/overrun.h"
#include "systems/tailwind/scopes.h"

namespace pyrdma::tailwind {

using fabric::Status;

namespace {

// The wr_id of a request says what it belongs to: a receive, a datagram (HelloPort), or the
// position of a frame of a session.
constexpr std::uint64_t kReceiveBit = std::uint64_t{1} << 63;
constexpr int kPositionBits = 20;
constexpr std::uint64_t kPositionMask = (std::uint64_t{1} << kPositionBits) - 1;
constexpr std::uint32_t kFramesOfRegion = 256;

}  // namespace

Transport::Transport(Env& env, const Options& options, ServerId self, std::uint32_t receives,
                     Bugs bugs)
    : env_(env),
      options_(options),
      self_(self),
      bugs_(bugs),
      tick_(std::min<Time>(options.retry_pause, kMillisecond)),
      receive_count_(self.is_server() ? receives / 2 : receives),
      mutex_(env),
      next_nonce_(env.rng("tailwind/nonce/" + std::to_string(self.life))()),
      batch_(64) {
  fabric::Device& device = env.device();
  device.open();
  domain_ = device.create_protection_domain();
  const fabric::Capabilities& has = device.capabilities();
  completion_count_ = std::min<std::uint32_t>(has.max_completions, 1U << 14);
  completions_ = device.create_completion_queue(completion_count_);
  receives_ = device.create_shared_receive_queue(*domain_, receive_count_, 1);
  if (receive_count_ != receives)
    client_receives_ = device.create_shared_receive_queue(*domain_, receives - receive_count_, 1);
  receive_memory_ = device.allocate(*domain_, std::size_t{receives} * kFrameBytes);
  max_inline_ = std::min<std::uint32_t>(has.max_inline, 256);
  for (std::uint32_t slot = 0; slot < receives; ++slot)
    post_receive(static_cast<std::int32_t>(slot));
  port_ = std::make_unique<HelloPort>(env, *domain_, *completions_, options.name, self);
}

Transport::~Transport() = default;

TransportCounters Transport::counters() {
  const std::lock_guard<Mutex> lock(mutex_);
  return counters_;
}

std::uint32_t Transport::connections() {
  const std::lock_guard<Mutex> lock(mutex_);
  std::size_t count = sessions_.size() + log_ends_.size();
  return static_cast<std::uint32_t>(count + endings_.size());
}

std::uint32_t Transport::log_connections() {
  const std::lock_guard<Mutex> lock(mutex_);
  return static_cast<std::uint32_t>(log_ends_.size());
}

// ---- sending ----

void Transport::call(ServerId to, Opcode opcode, ByteView payload, Time deadline, OnEnd on_end) {
  const Scope step(env_, scope::send_message);
  work_for(1);
  const std::lock_guard<Mutex> lock(mutex_);
  const std::uint64_t number = next_call_++;
  const auto end_at_once = [&] {
    ended_.push_back({std::move(on_end), CallEnd::kUnreachable, {}, {}, -1});
    env_.notify(watch());
  };
  if (closed_.contains(to)) return end_at_once();
  Session* session = session_to(to, deadline);
  if (session == nullptr) return end_at_once();
  calls_.emplace(number, Call{session->number, deadline, std::move(on_end)});
  FrameHeader header;
  header.call = number;
  header.opcode = static_cast<std::uint8_t>(opcode);
  send(*session, header, payload);
}

void Transport::answer(std::unique_ptr<Incoming> request, ByteView answer) {
  const Scope step(env_, scope::send_message);
  work_for(1);
  const std::lock_guard<Mutex> lock(mutex_);
  if (request->slot_ >= 0) post_receive(request->slot_);
  const auto session = sessions_.find(request->session_);
  if (session == sessions_.end()) return;
  FrameHeader header;
  header.call = request->call_;
  header.opcode = static_cast<std::uint8_t>(request->opcode);
  header.is_answer = 1;
  send(session->second, header, answer);
}

void Transport::send(Session& session, FrameHeader header, ByteView payload) {
  std::array<std::byte, kFrameBytes> frame;
  header.total = static_cast<std::uint32_t>(payload.size());
  const std::uint64_t number = session.number;
  ++counters_.sent;
  for (std::size_t offset = 0; offset == 0 || offset < payload.size(); offset += kFrameData) {
    const std::size_t bytes = std::min<std::size_t>(payload.size() - offset, kFrameData);
    header.offset = static_cast<std::uint32_t>(offset);
    std::memcpy(frame.data(), &header, sizeof header);
    if (bytes != 0) std::memcpy(frame.data() + sizeof header, payload.data() + offset, bytes);
    const ByteView whole(frame.data(), sizeof header + bytes);
    if (!session.is_ready || !session.backlog.empty() || !post(session, whole)) {
      if (!sessions_.contains(number)) return;  // it has broken
      session.backlog.emplace_back(whole.begin(), whole.end());
    }
  }
}

std::optional<std::uint32_t> Transport::take_frame() {
  if (free_frames_.empty()) {
    const auto first = static_cast<std::uint32_t>(frame_memory_.size()) * kFramesOfRegion;
    try {
      frame_memory_.push_back(
          env_.device().allocate(*domain_, std::size_t{kFramesOfRegion} * kFrameBytes));
    } catch (const Error&) {
      return std::nullopt;
    }
    for (std::uint32_t i = 0; i < kFramesOfRegion; ++i) free_frames_.push_back(first + i);
  }
  const std::uint32_t frame = free_frames_.back();
  free_frames_.pop_back();
  return frame;
}

// Returns false when the queue is full or no frame is free, or when the session has broken and is
// gone.
bool Transport::post(Session& session, ByteView frame) {
  if (session.posted - session.completed >= kSendEntries) return false;
  fabric::WorkRequest request;
  fabric::Sge sge;
  std::optional<std::uint32_t> used;
  if (frame.size() <= max_inline_) {
    sge = {reinterpret_cast<std::uint64_t>(frame.data()), static_cast<std::uint32_t>(frame.size()),
           0};
    request.flags = fabric::kInline;
  } else {
    used = take_frame();
    if (!used) return false;
    fabric::MemoryRegion& region = *frame_memory_[*used / kFramesOfRegion];
    const std::size_t at = std::size_t{*used % kFramesOfRegion} * kFrameBytes;
    std::memcpy(region.data() + at, frame.data(), frame.size());
    env_.charge_copy(frame.size());
    sge = region.sge(at, static_cast<std::uint32_t>(frame.size()));
    request.flags = 0;
  }
  const std::uint64_t position = session.posted + 1;
  const bool is_signaled =
      position - session.signaled >= kSignalEvery || position - session.completed >= kSendEntries;
  request.sges = &sge;
  request.sge_count = 1;
  request.opcode = fabric::Opcode::kSend;
  if (post(session, request, is_signaled)) {
    if (used) session.in_flight.emplace_back(position, *used);
    return true;
  }
  if (used) free_frames_.push_back(*used);
  return false;
}

bool Transport::post(Session& session, fabric::WorkRequest& request, bool is_signaled) {
  const std::uint64_t position = session.posted + 1;
  if (is_signaled) request.flags |= fabric::kSignaled;
  request.wr_id = session.number << kPositionBits | (position & kPositionMask);
  const fabric::PostResult result = session.qp->post({&request, 1});
  if (result.accepted == 1) {
    session.posted = position;
    if (is_signaled) session.signaled = position;
    return true;
  }
  if (result.error != fabric::PostError::kQueueFull) end_session(session.number);
  return false;
}

// A full queue is a probe by itself.
void Transport::probe(Session& session, Time now) {
  session.heard = now;
  if (session.posted - session.completed >= kSendEntries) return;
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::kWrite;
  post(session, request, true);
}

void Transport::flush(Session& session) {
  const std::uint64_t number = session.number;
  while (session.is_ready && !session.backlog.empty()) {
    const Bytes frame = std::move(session.backlog.front());
    session.backlog.pop_front();
    if (post(session, frame)) continue;
    if (sessions_.contains(number)) session.backlog.push_front(frame);
    return;
  }
}

void Transport::end_call(std::uint64_t call, CallEnd end) {
  const auto at = calls_.find(call);
  ended_.push_back({std::move(at->second.on_end), end, {}, {}, -1});
  calls_.erase(at);
  env_.notify(watch());
}

void Transport::defer(Time at, std::function<void()> act) {
  const std::lock_guard<Mutex> lock(mutex_);
  timers_.push_back({at, std::move(act)});
}

// ---- the polling thread ----

void Transport::throw_overrun() const {
  throw fabric::overrun_error(*completions_, self_.node, to_string(self_));
}

void Transport::post_receive(std::int32_t slot) {
  const fabric::Sge sge =
      receive_memory_->sge(static_cast<std::size_t>(slot) * kFrameBytes, kFrameBytes);
  const fabric::ReceiveRequest request{kReceiveBit | static_cast<std::uint64_t>(slot), &sge, 1};
  const bool is_of_client = static_cast<std::uint32_t>(slot) >= receive_count_;
  (is_of_client ? client_receives_ : receives_)->post_receive({&request, 1});
}

bool Transport::poll(std::vector<std::unique_ptr<Incoming>>& requests) {
  const std::size_t got = completions_->poll(batch_);
  passed_ += got < batch_.size() ? completion_count_ : got;
  if (got == 0) return false;
  const std::uint64_t before = counters_.received;  // this thread alone counts them
  {
    const std::lock_guard<Mutex> lock(mutex_);
    const Time now = env_.now();
    for (std::size_t i = 0; i < got; ++i) take(batch_[i], now, requests);
  }
  work_for(counters_.received - before);
  run_ended();
  return true;
}

void Transport::take(const fabric::Completion& completion, Time now,
                     std::vector<std::unique_ptr<Incoming>>& requests) {
  if ((completion.wr_id & kReceiveBit) != 0) {
    const Scope step(env_, scope::take_message);
    const auto slot = static_cast<std::int32_t>(completion.wr_id & ~kReceiveBit);
    const auto session = by_qp_.find(completion.qp_num);
    if (completion.status != Status::kSuccess || session == by_qp_.end()) {
      post_receive(slot);
      return;
    }
    const ByteView frame(receive_memory_->data() + static_cast<std::size_t>(slot) * kFrameBytes,
                         completion.byte_count);
    return take_frame_of(sessions_.at(session->second), frame, slot, now, requests);
  }
  if (completion.wr_id >= HelloPort::kFirstId) {
    if (const auto received = port_->take(completion)) take_hello(*received);
    return;
  }
  const auto at = sessions_.find(completion.wr_id >> kPositionBits);
  if (at == sessions_.end()) return;
  Session& session = at->second;
  if (completion.status != Status::kSuccess) return end_session(session.number);
  session.heard = now;
  session.completed += ((completion.wr_id & kPositionMask) - session.completed) & kPositionMask;
  while (!session.in_flight.empty() && session.in_flight.front().first <= session.completed) {
    free_frames_.push_back(session.in_flight.front().second);
    session.in_flight.pop_front();
  }
  flush(session);
}

// A frame that does not continue the message of its session ends the session: the peer is broken.
void Transport::take_frame_of(Session& session, ByteView frame, std::int32_t slot, Time now,
                              std::vector<std::unique_ptr<Incoming>>& requests) {
  session.heard = now;
  FrameHeader header;
  const bool has_header = frame.size() >= sizeof header;
  if (has_header) std::memcpy(&header, frame.data(), sizeof header);
  const ByteView data = has_header ? frame.subspan(sizeof header) : ByteView();
  const bool continues = header.offset == session.bytes.size() &&
                         (header.offset == 0 || (header.call == session.partial.call &&
                                                 header.total == session.partial.total));
  const std::uint32_t rest = header.total - header.offset;
  if (!has_header || header.total > kMostMessage || header.offset > header.total || !continues ||
      data.size() != std::min(rest, kFrameData) ||
      header.opcode >= static_cast<std::uint8_t>(Opcode::kCount) || header.is_answer > 1 ||
      (header.is_answer != 0) != session.is_outgoing) {
    ++counters_.malformed;
    post_receive(slot);
    return end_session(session.number);
  }
  ByteView message = data;
  Bytes bytes;
  if (header.total > kFrameData) {
    session.bytes.reserve(header.total);
    session.bytes.insert(session.bytes.end(), data.begin(), data.end());
    env_.charge_copy(data.size());
    session.partial = header;
    post_receive(std::exchange(slot, -1));
    if (data.size() < rest) return;
    bytes = std::exchange(session.bytes, {});
    message = bytes;
  }
  ++counters_.received;
  const auto opcode = static_cast<Opcode>(header.opcode);
  if (opcode != Opcode::kPing && opcode != Opcode::kRenew) last_event_ = now;
  if (header.is_answer == 0) {
    auto request = std::make_unique<Incoming>();
    request->from = session.peer;
    request->opcode = opcode;
    request->arrived = now;
    request->call_ = header.call;
    request->session_ = session.number;
    request->bytes_ = std::move(bytes);
    request->payload_ = message;
    request->slot_ = slot;
    requests.push_back(std::move(request));
    return;
  }
  const auto call = calls_.find(header.call);
  if (call == calls_.end() || call->second.session != session.number) {
    if (slot >= 0) post_receive(slot);
    return;
  }
  ended_.push_back(
      {std::move(call->second.on_end), CallEnd::kAnswered, message, std::move(bytes), slot});
  calls_.erase(call);
}

void Transport::run_ended() {
  while (true) {
    std::vector<Ended> ended;
    {
      const std::lock_guard<Mutex> lock(mutex_);
      ended.swap(ended_);
    }
    if (ended.empty()) return;
    for (const Ended& each : ended) each.on_end(each.end, each.answer);
    const std::lock_guard<Mutex> lock(mutex_);
    for (const Ended& each : ended)
      if (each.slot >= 0) post_receive(each.slot);
  }
}

void Transport::keep_time() {
  const Scope step(env_, scope::keep_time);
  const Time now = env_.now();
  std::vector<std::function<void()>> due;
  {
    const std::lock_guard<Mutex> lock(mutex_);
    std::vector<std::uint64_t> late;
    for (const auto& [call, each] : calls_)
      if (each.deadline <= now) late.push_back(call);
    std::ranges::sort(late);
    for (const std::uint64_t call : late) end_call(call, CallEnd::kTimedOut);
    std::vector<std::uint64_t> ending;
    for (auto knock_at = knocks_.begin(); knock_at != knocks_.end();) {
      if (knock_at->deadline > now) {
        if (knock_at->next <= now) knock(*knock_at, now);
        ++knock_at;
        continue;
      }
      if (knock_at->on_connected)
        due.push_back([act = std::move(knock_at->on_connected)] { act(std::nullopt); });
      else
        ending.push_back(knock_at->session);
      knock_at = knocks_.erase(knock_at);
    }
    for (const std::uint64_t session : ending) end_session(session);
    for (std::size_t i = 0; i < timers_.size();) {
      if (timers_[i].at > now) {
        ++i;
        continue;
      }
      due.push_back(std::move(timers_[i].act));
      timers_.erase(timers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    next_timer_ = kForever;
    for (const Timer& timer : timers_) next_timer_ = std::min(next_timer_, timer.at);
    tend_sessions(now);
    destroy_ended(now);
  }
  for (const auto& act : due) act();
  run_ended();
}

void Transport::tend_sessions(Time now) {
  std::vector<std::uint64_t> waiting, silent;
  for (const auto& [number, session] : sessions_) {
    if (!session.backlog.empty()) waiting.push_back(number);
    if (bugs_.probes_idle() && !session.is_outgoing && now - session.heard > options_.call_timeout)
      silent.push_back(number);
  }
  for (const std::uint64_t number : waiting)
    if (const auto at = sessions_.find(number); at != sessions_.end()) flush(at->second);
  for (const std::uint64_t number : silent)
    if (const auto at = sessions_.find(number); at != sessions_.end()) probe(at->second, now);
}

}  // namespace pyrdma::tailwind
