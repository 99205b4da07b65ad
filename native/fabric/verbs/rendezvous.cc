#include "fabric/verbs/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "fabric/verbs/node.h"

namespace pyrdma::fabric::verbs {
namespace {

constexpr Time kGrace = 500 * kMillisecond;
constexpr Time kFirstPause = 50 * kMicrosecond;
// A node that waits for others leaves the CPU to them.
constexpr Time kLongestPause = 10 * kMillisecond;

[[noreturn]] void throw_failure(Reader& reader) {
  const auto code = static_cast<ErrorCode>(reader.get<std::uint8_t>());
  throw Error(code, reader.get_text());
}

// Pauses between two attempts to attach. Each is lengthened by chance, so that nodes which were
// refused together do not come back together.
constexpr Time kFirstRetry = 10 * kMillisecond, kLongestRetry = kSecond;

Time monotonic() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
void pause_for(Time time) { std::this_thread::sleep_for(std::chrono::nanoseconds(time)); }

/// Makes one attempt. Throws Error(kUnavailable) when another attempt may succeed.
Link attach_once(const std::string& session_name, const std::string& token, const Bytes& hello,
                 Time deadline, Bytes* reply) {
  const auto left = [deadline] { return std::max(deadline - monotonic(), kMillisecond); };
  Link link;
  Socket socket = connect_to(session_name, left());
  link.connect(std::move(socket), token, std::min(left(), kSilence));
  if (link.send(hello) && link.receive(reply, std::min(left(), kSilence))) return link;
  if (link.is_unproven()) {
    throw Error(ErrorCode::kInvalidArgument,
                "verbs: the token is not that of session " + session_name +
                    "; give the name and the token of the same Session");
  }
  throw Error(ErrorCode::kUnavailable,
              "verbs: session " + session_name +
                  " closed the connection before it welcomed this node: its controller has ended, "
                  "or too many strangers connect to it");
}

}  // namespace

Link attach(const std::string& session_name, NodeId node, std::uint32_t nodes,
            const std::string& token, Channel channel, Welcome* welcome, Time timeout) {
  const Time deadline = monotonic() + timeout;
  Writer hello(MessageKind::kHello);
  hello.put(node).put(nodes).put(channel).put_text(boot_id());
  Rng rng(static_cast<std::uint64_t>(monotonic()), node, session_name);
  Bytes message;
  Link link;
  for (Time pause = kFirstRetry; !link.is_open(); pause = std::min(2 * pause, kLongestRetry)) {
    try {
      link = attach_once(session_name, token, hello.bytes(), deadline, &message);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnavailable) throw;
      const Time wait = pause + static_cast<Time>(rng.below(static_cast<std::uint64_t>(pause)));
      const Time now = monotonic();
      if (now >= deadline) {
        throw Error(error.code(), std::string(error.what()) + " (node " + std::to_string(node) +
                                      " tried for " + std::to_string(timeout / kMillisecond) +
                                      " ms)");
      }
      pause_for(std::min(wait, deadline - now));
    }
  }
  Reader reader(message);
  if (reader.get<MessageKind>() != MessageKind::kWelcome) throw_failure(reader);
  welcome->seed = reader.get<std::uint64_t>();
  const bool same_machine = reader.get<bool>();
  welcome->clock = reader.get<Clock>();
  if (!same_machine) welcome->clock = Clock::calibrate();
  welcome->incarnation = reader.get<std::uint32_t>();
  welcome->neighbours = reader.get<std::uint32_t>();
  return link;
}

// The controller answers at once. After a timeout its answer could come at any later time, so the
// connection is unusable.
Bytes VerbsRendezvous::call(const Bytes& request, Time timeout) {
  const std::lock_guard lock(mutex_);
  Bytes reply;
  if (!calls_.is_open() || !calls_.send(request) || !calls_.receive(&reply, timeout)) {
    calls_.close();
    throw Error(ErrorCode::kUnavailable,
                "rendezvous: the controller of this run does not answer; check that its process "
                "runs and the network to it is up");
  }
  return reply;
}

void VerbsRendezvous::publish(std::string_view key, std::span<const std::byte> value) {
  if (key.empty() || key.size() > kMaxKey || value.size() > kMaxValue) {
    throw Error(ErrorCode::kInvalidArgument,
                "rendezvous: the key has " + std::to_string(key.size()) + " bytes and the value " +
                    std::to_string(value.size()) + " bytes; give a key of 1 to " +
                    std::to_string(kMaxKey) + " and a value of at most " +
                    std::to_string(kMaxValue) + " bytes");
  }
  const Bytes reply =
      call(Writer(MessageKind::kPublish).put_text(key).put_bytes(value).bytes(), kSilence);
  Reader reader(reply);
  if (reader.get<MessageKind>() != MessageKind::kDone) throw_failure(reader);
}

std::optional<std::vector<std::byte>> VerbsRendezvous::ask_for(const Bytes& request, Time timeout,
                                                               std::string* gone) {
  node_.on_slow_turn();
  const Bytes reply = call(request, timeout);
  Reader reader(reply);
  if (reader.get<MessageKind>() == MessageKind::kValue) {
    const auto value = reader.get_bytes();
    return std::vector<std::byte>(value.begin(), value.end());
  }
  *gone = reader.get_text();
  return std::nullopt;
}

std::optional<std::vector<std::byte>> VerbsRendezvous::find(std::string_view key) {
  std::string gone;
  return ask_for(Writer(MessageKind::kGet).put_text(key).bytes(), kGrace, &gone);
}

std::vector<std::byte> VerbsRendezvous::await(std::string_view key, Time deadline) {
  Env& env = node_.env();
  const Bytes request = Writer(MessageKind::kGet).put_text(key).bytes();
  Time gone_since = kForever;
  for (Time pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const Time left = std::max(deadline - env.now(), kGrace);
    std::string gone;
    if (auto value = ask_for(request, std::min(left, kSilence), &gone)) return *std::move(value);
    const Time now = env.now();
    if (now >= deadline) {
      throw Error(ErrorCode::kTimeout,
                  "rendezvous: no node published key '" + std::string(key) +
                      "' before the deadline; check that the peer runs, and runs the same program");
    }
    gone_since = gone.empty() ? kForever : std::min(gone_since, now);
    if (!gone.empty() && now >= gone_since + kGrace) {
      throw NodesEnded(key, gone);
    }
    env.sleep_until(std::min(deadline, now + pause));
  }
}

void VerbsRendezvous::leave() {
  try {
    call(Writer(MessageKind::kLeave).bytes(), kSecond);
  } catch (const Error&) {  // the controller ended first
  }
  const std::lock_guard lock(mutex_);
  calls_.close();
}

}  // namespace pyrdma::fabric::verbs
