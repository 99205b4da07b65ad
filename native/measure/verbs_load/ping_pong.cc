#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/remote_word.h"
#include "env/scopes.h"
#include "measure/verbs_load/latency_loop.h"

namespace pyrdma::measure::verbs_load {

namespace {

// The last byte of a message is a sequence number. It counts from 1 to kLast and then from 1 again;
// 0 is the initial content of the memory.
constexpr std::uint8_t kLast = 200, kStop = 255;
constexpr std::uint32_t kSignalEvery = 32;  // the send queue has at least 64 entries

std::uint8_t after(std::uint8_t sequence) {
  return sequence == kLast ? 1 : static_cast<std::uint8_t>(sequence + 1);
}

/// PingPongSide is one side of a ping-pong.
class PingPongSide {
 public:
  PingPongSide(Env& env, const Load& load, Sender& sender, const fabric::MemoryRegion* inbox,
               ThreadRecorder& recorder)
      : env_(env), load_(load), sender_(sender), route_(sender.routes.front()) {
    if (load.record_one_way) {
      const std::string op = fabric::to_string(load.op);
      one_way_ = &recorder.histogram("one_way_" + op);
    }
    sge_ = sender.local->sge(0, load.size);
    last_byte_ = reinterpret_cast<std::uint8_t*>(sender.local->data()) + load.size - 1;
    request_.sges = &sge_;
    request_.sge_count = 1;
    request_.opcode = load.op;
    if (inbox != nullptr) {
      const fabric::RemoteRegion& region = route_.regions->front();
      const std::uint64_t place = Connections::place_of(load, route_.client);
      request_.remote_addr = region.addr + place;
      request_.rkey = region.rkey;
      arriving_ = reinterpret_cast<const std::uint8_t*>(inbox->data()) + place + load.size - 1;
    } else {
      buffer_ = sender.local->sge(load.stride(), load.size);
      arriving_ = reinterpret_cast<const std::uint8_t*>(sender.local->data()) + load.stride() +
                  load.size - 1;
      for (int i = 0; i < 4; ++i) post_receive();
    }
  }

  void send(std::uint8_t sequence) {
    if (one_way_ != nullptr) stamp();
    if (*last_byte_ != sequence) *last_byte_ = sequence;
    // Only some requests are signaled, which keeps the send queue from filling. Without inline
    // data, the NIC reads the payload before the answer can come, so the next change of the payload
    // is safe.
    const bool signaled = ++sent_ % kSignalEvery == 0;
    request_.flags = static_cast<std::uint8_t>((load_.inlined ? fabric::kInline : 0) |
                                               (signaled ? fabric::kSignaled : 0));
    if (route_.qp->post({&request_, 1}).accepted != 1) [[unlikely]]
      fail("the device refused a request");
    // An inline send frees the buffer at once. Written now, the next payload has left the store
    // buffer by the time that the NIC copies it.
    if (load_.inlined) *last_byte_ = after(sequence);
    if (signaled) signals_ += 1;
    if (signals_ != 0) collect();
  }

  /// Takes the next sequence number that is not `old`. Returns false when none came by `deadline`.
  bool receive(std::uint8_t old, Time deadline, std::uint8_t& sequence) {
    const bool came = take(old, deadline, sequence);
    if (came && one_way_ != nullptr && sequence != kStop) record();
    return came;
  }

  /// Waits for the completions of signaled requests, so that the buffers may be freed.
  void finish(Time deadline) {
    env_.poll_until(
        [&] {
          collect();
          return signals_ == 0;
        },
        deadline, &sender_.cq->watch());
  }
  /// Says whether the measurement has begun, so that single ways count.
  void count_ways(bool begun) { counts_ = begun; }

 private:
  bool take(std::uint8_t old, Time deadline, std::uint8_t& sequence) {
    if (buffer_.length != 0) return take_message(deadline, sequence);
    // Charges the turn that finds it. An empty turn costs as much by itself, and a bare loop spins
    // faster.
    const Scope step(env_, env_scope::poll_turn);
    return env_.poll_until([&] { return (sequence = load_acquire(arriving_)) != old; }, deadline);
  }

  /// Writes the time of the post into the message. The other side reads it behind the last byte,
  /// as that of a whole message.
  void stamp() {
    const Time now = env_.now();
    std::memcpy(reinterpret_cast<std::byte*>(last_byte_) - (load_.size - 1), &now, sizeof now);
  }

  void record() {
    Time sent = 0;
    std::memcpy(&sent, arriving_ - (load_.size - 1), sizeof sent);
    if (counts_) one_way_->record(std::max<Time>(env_.now() - sent, 0));
  }

  void post_receive() {
    const fabric::ReceiveRequest request{0, &buffer_, 1};
    if (route_.qp->post_receive({&request, 1}).accepted != 1) [[unlikely]]
      fail("the device refused a receive");
  }

  void collect() {
    fabric::Completion completion;
    if (sender_.cq->poll({&completion, 1}) == 0) return;
    if (completion.status != fabric::Status::kSuccess) [[unlikely]]
      fail(fabric::to_string(completion.status));
    signals_ -= 1;
  }

  bool take_message(Time deadline, std::uint8_t& sequence) {
    fabric::Completion completion;
    if (!env_.poll_until(
            [&] {
              return sender_.receives->poll({&completion, 1}) != 0;
            },
            deadline, &sender_.receives->watch())) {
      return false;
    }
    if (completion.status != fabric::Status::kSuccess) [[unlikely]]
      fail(fabric::to_string(completion.status));
    sequence = load_acquire(arriving_);
    post_receive();
    return true;
  }

  [[noreturn]] void fail(const char* why) const {
    throw Error(ErrorCode::kUnavailable,
                std::string("verbs_load: ping-pong with node ") + std::to_string(route_.peer) +
                    " failed: " + why,
                false);
  }

  Env& env_;
  const Load& load_;
  Sender& sender_;
  const Route& route_;
  fabric::Sge sge_, buffer_;
  fabric::WorkRequest request_;
  std::uint8_t* last_byte_;
  const std::uint8_t* arriving_;
  std::uint64_t sent_ = 0;
  std::uint32_t signals_ = 0;
  Histogram* one_way_ = nullptr;
  bool counts_ = false;
};

[[noreturn]] void throw_silent(NodeId peer) {
  throw Error(ErrorCode::kTimeout,
              "verbs_load: node " + std::to_string(peer) +
                  " did not answer in a ping-pong: the node has ended or lost the message",
              false);
}

}  // namespace

void run_ping(Env& env, const Load& load, Sender& sender, const fabric::MemoryRegion* inbox,
              ThreadRecorder& recorder) {
  PingPongSide side(env, load, sender, inbox, recorder);
  const NodeId peer = sender.routes.front().peer;
  Histogram& latency = recorder.histogram(fabric::to_string(load.op));
  Time now = env.now();
  Window window(now, load.warmup, load.duration, load.iterations);
  const Time deadline = window.deadline();
  std::uint8_t sequence = 0, answer = 0;
  for (std::uint64_t trips = 0; !window.over(now, trips); trips += load.clock_every) {
    const Time begin = now;
    side.count_ways(window.open());
    for (std::uint32_t i = 0; i < load.clock_every; ++i) {
      sequence = after(sequence);
      side.send(sequence);
      if (!side.receive(answer, deadline, answer)) throw_silent(peer);
    }
    now = env.now();
    if (window.open()) latency.record((now - begin) / (2 * load.clock_every), load.clock_every);
  }
  side.send(kStop);
  side.finish(deadline);
  add_rates(recorder, window, load.size);
}

void run_pong(Env& env, const Load& load, Sender& sender, const fabric::MemoryRegion* inbox,
              ThreadRecorder& recorder) {
  PingPongSide side(env, load, sender, inbox, recorder);
  const Time begin = env.now();
  const Time deadline = Window(begin, load.warmup, load.duration, load.iterations).deadline();
  std::uint8_t sequence = 0;
  for (;;) {
    side.count_ways(load.record_one_way && env.now() > begin + load.warmup);
    if (!side.receive(sequence, deadline, sequence)) throw_silent(sender.routes.front().peer);
    if (sequence == kStop) break;
    side.send(sequence);
  }
  side.finish(deadline);
}

}  // namespace pyrdma::measure::verbs_load
