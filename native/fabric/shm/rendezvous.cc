#include "fabric/shm/rendezvous.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "base/error.h"
#include "base/rng.h"
#include "fabric/shm/lock.h"
#include "fabric/shm/node.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr std::uint64_t kUnit = 64;  // bytes; the log is written in these units
constexpr Time kGrace = 500 * kMillisecond;

struct EntryHead {
  std::uint32_t key_bytes, value_bytes;
};

}  // namespace

bool ShmRendezvous::look_up(std::string_view key, std::vector<std::byte>& value) const {
  const SessionBlock& session = node_.session();
  const std::uint64_t start = hash_text(key);
  for (std::uint32_t probe = 0; probe < kIndexSlots; ++probe) {
    const std::uint32_t position =
        session.index[(start + probe) % kIndexSlots].load(std::memory_order_acquire);
    if (position == 0) return false;
    const std::uint64_t offset = (std::uint64_t{position} - 1) * kUnit;
    if (offset > kLogBytes - kMaxKey - kMaxValue - sizeof(EntryHead))
      continue;  // a hostile peer wrote it
    EntryHead head{};
    std::memcpy(&head, session.log + offset, sizeof head);
    if (head.key_bytes != key.size() || head.value_bytes > kMaxValue) continue;
    const std::byte* text = session.log + offset + sizeof head;
    if (std::memcmp(text, key.data(), key.size()) != 0) continue;
    value.assign(text + key.size(), text + key.size() + head.value_bytes);
    return true;
  }
  return false;
}

void ShmRendezvous::publish(std::string_view key, std::span<const std::byte> value) {
  if (key.empty() || key.size() > kMaxKey || value.size() > kMaxValue) {
    throw Error(ErrorCode::kInvalidArgument,
                "rendezvous: the key has " + std::to_string(key.size()) + " bytes and the value " +
                    std::to_string(value.size()) + " bytes; give a key of 1 to " +
                    std::to_string(kMaxKey) + " and a value of at most " +
                    std::to_string(kMaxValue) + " bytes");
  }
  SessionBlock& session = node_.session();
  if (!lock(session.publish_lock, node_.holder(), session)) {
    throw Error(ErrorCode::kUnavailable,
                "rendezvous: another node holds the table's lock but does not run; resume or end "
                "that node's process");
  }
  std::vector<std::byte> known;
  const bool exists = look_up(key, known);
  const std::uint64_t end = relaxed(session.log_end);
  const std::uint64_t bytes =
      (sizeof(EntryHead) + key.size() + value.size() + kUnit - 1) / kUnit * kUnit;
  bool stored = exists;
  // The bound of look_up() leaves space for the largest entry after every position.
  if (!exists && end <= kLogBytes - kMaxKey - kMaxValue - sizeof(EntryHead)) {
    const std::uint64_t start = hash_text(key);
    for (std::uint32_t probe = 0; probe < kIndexSlots && !stored; ++probe) {
      Word<std::uint32_t>& slot = session.index[(start + probe) % kIndexSlots];
      if (relaxed(slot) != 0) continue;
      const EntryHead head{static_cast<std::uint32_t>(key.size()),
                           static_cast<std::uint32_t>(value.size())};
      std::memcpy(session.log + end, &head, sizeof head);
      std::memcpy(session.log + end + sizeof head, key.data(), key.size());
      if (!value.empty())
        std::memcpy(session.log + end + sizeof head + key.size(), value.data(), value.size());
      set_relaxed(session.log_end, end + bytes);
      slot.store(static_cast<std::uint32_t>(end / kUnit + 1), std::memory_order_release);
      stored = true;
    }
  }
  unlock(session.publish_lock);
  if (!stored) {
    throw Error(ErrorCode::kExhausted, "rendezvous: the table of this run is full (" +
                                           std::to_string(kLogBytes / kMiB) +
                                           " MiB); start a new cluster");
  }
  if (exists && !std::equal(known.begin(), known.end(), value.begin(), value.end())) {
    throw Error(ErrorCode::kInvalidArgument, "rendezvous: key '" + std::string(key) +
                                                 "' already has another value; choose another key");
  }
}

std::optional<std::vector<std::byte>> ShmRendezvous::find(std::string_view key) {
  std::vector<std::byte> value;
  if (!look_up(key, value)) {
    node_.on_slow_turn();
    return std::nullopt;
  }
  return value;
}

std::string ShmRendezvous::dead_nodes() const {
  const SessionBlock& session = node_.session();
  std::string names;
  for (NodeId node = 0; node < node_.nodes(); ++node) {
    if (session.is_gone(node)) names += (names.empty() ? "" : ", ") + std::to_string(node);
  }
  return names;
}

std::vector<std::byte> ShmRendezvous::await(std::string_view key, Time deadline) {
  ThreadEnv& env = node_.env();
  std::vector<std::byte> value;
  Time dead_since = kForever;
  for (std::uint32_t turn = 0; !look_up(key, value); ++turn) {
    node_.on_slow_turn();
    const Time now = env.now();
    if (now >= deadline) {
      throw Error(ErrorCode::kTimeout,
                  "rendezvous: no node published key '" + std::string(key) +
                      "' before the deadline; check that the peer runs, and runs the same program");
    }
    const std::string dead = dead_nodes();
    dead_since = dead.empty() ? kForever : std::min(dead_since, now);
    if (!dead.empty() && now >= dead_since + kGrace) {
      throw NodesEnded(key, dead);
    }
    if (turn < 200) {
      sched_yield();
    } else {
      env.sleep_until(std::min(deadline, now + (turn < 1000 ? 100 * kMicrosecond : kMillisecond)));
    }
  }
  return value;
}

}  // namespace pyrdma::fabric::shm
