#include "fabric/shm/session_block.h"

#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "env/thread/thread_storage.h"

namespace pyrdma::fabric::shm {
namespace {

std::string to_hex(const std::byte* data, std::size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto value = std::to_integer<unsigned>(data[i]);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

/// Compares in constant time for equal lengths.
bool equal_secrets(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

std::uint32_t SessionBlock::claim(NodeId node) {
  Word<std::uint32_t>& word = entries[node].status;
  std::uint32_t seen = word.load(std::memory_order_acquire);
  for (;;) {
    NodeStatus status = NodeStatus::of(seen);
    const bool left = status.state == NodeState::kDead || status.state == NodeState::kLeft;
    if (left) ++status.incarnation;
    if ((!left && status.state != NodeState::kFree) || status.incarnation > kMaxIncarnation) {
      throw Error(ErrorCode::kInvalidArgument,
                  "shm: node " + std::to_string(node) +
                      " of this session is taken; attach again once its process has ended");
    }
    status.state = NodeState::kAttaching;
    if (word.compare_exchange_weak(seen, status.word())) {
      // A reader of the new process's writes to the entry then also reads its incarnation.
      std::atomic_thread_fence(std::memory_order_release);
      return status.incarnation;
    }
  }
}

bool SessionBlock::change(NodeId node, std::uint32_t incarnation, NodeState from, NodeState to) {
  std::uint32_t expected = NodeStatus{from, incarnation}.word();
  return entries[node].status.compare_exchange_strong(expected, NodeStatus{to, incarnation}.word());
}

bool SessionBlock::declare_dead(NodeId node, std::uint32_t incarnation) {
  if (!change(node, incarnation, NodeState::kAttached, NodeState::kDead) &&
      !change(node, incarnation, NodeState::kAttaching, NodeState::kDead) &&
      !change(node, incarnation, NodeState::kAttached, NodeState::kDead)) {
    return false;
  }
  running.fetch_sub(entries[node].running.exchange(0), std::memory_order_relaxed);
  return true;
}

void SessionBlock::add_cores(const std::vector<int>& core_list) {
  for (const int core : core_list) {
    const auto at = static_cast<std::size_t>(core) % kMaxCores;
    core_bits[at / 64].fetch_or(1ULL << (at % 64));
  }
  int count = 0;
  for (const Word<std::uint64_t>& bits : core_bits) count += std::popcount(relaxed(bits));
  set_relaxed(cores, count);
}

std::shared_ptr<Mapping> create_session_block(std::uint32_t nodes, std::uint64_t seed) {
  if (nodes < 1 || nodes > kMaxNodes) {
    throw Error(ErrorCode::kInvalidArgument, "shm: nodes is " + std::to_string(nodes) +
                                                 "; it must be 1 to " + std::to_string(kMaxNodes));
  }
  auto mapping = Mapping::create(kSessionBytes);
  SessionBlock& block = session_block(*mapping);
  set_relaxed(block.nodes, nodes);
  block.seed = seed;
  block.controller_pid = static_cast<std::uint32_t>(::getpid());
  block.controller_start = process_start(::getpid());
  fill_random(block.token, sizeof block.token);
  block.clock = Clock::calibrate();
  block.magic = kSessionMagic;
  return mapping;
}

std::string session_name(const Mapping& mapping) {
  return "shm-" + std::to_string(session_block(mapping).controller_pid) + "-" +
         std::to_string(mapping.descriptor()) + "-" + std::to_string(mapping.inode());
}

std::string session_token(const Mapping& mapping) {
  return to_hex(session_block(mapping).token, kTokenBytes);
}

std::shared_ptr<Mapping> open_session_block(const std::string& name, const std::string& token,
                                            std::uint32_t nodes) {
  int pid = 0;
  int descriptor = 0;
  unsigned long long inode = 0;
  int end = 0;
  if (std::sscanf(name.c_str(), "shm-%d-%d-%llu%n", &pid, &descriptor, &inode, &end) != 3 ||
      static_cast<std::size_t>(end) != name.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "shm: '" + name + "' is not the name of a session; give Session::name()");
  }
  auto mapping = Mapping::open(pid, descriptor, inode, kSessionBytes);
  if (!mapping || session_block(*mapping).magic != kSessionMagic) {
    throw Error(ErrorCode::kUnavailable,
                "shm: session " + name +
                    " cannot be opened: its controller has ended, runs as another user, or "
                    "was built from another version");
  }
  SessionBlock& block = session_block(*mapping);
  if (!equal_secrets(session_token(*mapping), token)) {
    throw Error(ErrorCode::kInvalidArgument,
                "shm: the token is not that of session " + name + "; give Session::token()");
  }
  const std::uint32_t made_for = relaxed(block.nodes);
  if (made_for != nodes || nodes > kMaxNodes) {
    throw Error(ErrorCode::kInvalidArgument, "shm: nodes is " + std::to_string(nodes) +
                                                 "; session " + name + " was made for " +
                                                 std::to_string(made_for));
  }
  return mapping;
}

}  // namespace pyrdma::fabric::shm
