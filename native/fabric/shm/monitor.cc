#include "fabric/shm/monitor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "env/thread/thread_storage.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr NodeId kController = kMaxNodes;
// Period of the search for newly attached nodes and of the checks of processes without a
// descriptor.
constexpr int kLookMs = 100;
constexpr int kRetryMs = 1;

int open_process(int pid) {
#if defined(SYS_pidfd_open)
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
#else
  (void)pid;
  return -1;
#endif
}

}  // namespace

Monitor::Monitor(std::shared_ptr<Mapping> session, std::vector<Node*> local, bool watch_controller)
    : session_(std::move(session)),
      local_(std::move(local)),
      watch_controller_(watch_controller),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_ < 0)
    throw Error(ErrorCode::kExhausted,
                "shm: cannot create an event descriptor; raise the limit of open files");
  for (Node* node : local_) node->set_wake([this] { wake(); });
  if (watch_controller_) {
    const SessionBlock& block = session_block(*session_);
    watch(kController, 0, static_cast<int>(block.controller_pid), block.controller_start);
  }
  thread_ = std::thread([this] { run(); });
}

Monitor::~Monitor() {
  for (Node* node : local_) node->set_wake(nullptr);
  stop_.store(true, std::memory_order_release);
  wake();
  thread_.join();
  ::close(event_);
  for (const Watched& watched : watched_) {
    if (watched.descriptor >= 0) ::close(watched.descriptor);
  }
}

void Monitor::wake() {
  const std::uint64_t one = 1;
  // A full counter also wakes the reader.
  if (::write(event_, &one, sizeof one) < 0 && errno != EAGAIN) std::abort();
}

void Monitor::watch(NodeId node, std::uint32_t incarnation, int pid, std::uint64_t start) {
  if (pid == ::getpid()) {
    watched_.push_back({node, incarnation, pid, start, -1, true});
    return;
  }
  watched_.push_back({node, incarnation, pid, start, open_process(pid), false});
  // The process may have ended, and another may have its pid, before the descriptor was made.
  if (process_start(pid) != start) check(watched_.back());
}

void Monitor::forget(NodeId node) {
  std::erase_if(watched_, [this, node](const Watched& watched) {
    if (watched.node != node) return false;
    if (watched.descriptor >= 0) ::close(watched.descriptor);
    for (Node* local : local_) local->mark_gone(node, watched.incarnation);
    return true;
  });
}

void Monitor::find_processes() {
  SessionBlock& block = session_block(*session_);
  for (NodeId node = 0; node < block.node_count(); ++node) {
    const NodeStatus status = block.status(node);
    const auto known =
        std::find_if(watched_.begin(), watched_.end(),
                     [node](const Watched& watched) { return watched.node == node; });
    if (known != watched_.end() && known->incarnation == status.incarnation) {
      if (!status.is_gone() || known->ended) continue;
      known->ended = true;  // another process declared it dead first
      for (Node* local : local_) local->mark_gone(node, status.incarnation);
    } else if (status.is_attached()) {
      forget(node);
      const int pid = static_cast<int>(relaxed(block.entries[node].pid));
      const std::uint64_t start = relaxed(block.entries[node].start);
      std::atomic_thread_fence(std::memory_order_acquire);
      // If the incarnation has changed, the words are the successor's, and the next search finds
      // it.
      if (block.status(node).incarnation == status.incarnation) {
        watch(node, status.incarnation, pid, start);
      }
    } else if (status.is_gone()) {
      forget(node);
      watched_.push_back({node, status.incarnation, 0, 0, -1, true});
      for (Node* local : local_) local->mark_gone(node, status.incarnation);
    }
  }
}

// The caller has a sign that the process may have ended.
void Monitor::check(Watched& watched) {
  if (watched.ended) return;
  if (watched.descriptor >= 0) {
    pollfd query{watched.descriptor, POLLIN, 0};
    if (::poll(&query, 1, 0) == 0 && process_start(watched.pid) == watched.start) return;
  } else if (process_start(watched.pid) == watched.start) {
    return;
  }
  watched.ended = true;
  SessionBlock& block = session_block(*session_);
  if (watched.node == kController) {
    block.stop.store(1, std::memory_order_release);
    return;
  }
  block.declare_dead(watched.node, watched.incarnation);
  for (Node* node : local_) node->mark_gone(watched.node, watched.incarnation);
}

bool Monitor::retry() {
  bool waiting = false;
  for (Node* node : local_) {
    if (node->waiting().empty()) continue;
    node->waiting().retry(node->env().now());
    waiting |= !node->waiting().empty();
  }
  return waiting;
}

void Monitor::run() {
  const SessionBlock& block = session_block(*session_);
  std::vector<pollfd> queries;
  while (!stop_.load(std::memory_order_acquire)) {
    find_processes();
    // A gone node may come back. A watched node cannot end unseen.
    bool settled = true;
    for (NodeId node = 0; node < block.node_count(); ++node) {
      settled &= block.status(node).is_attached();
    }
    queries.assign(1, {event_, POLLIN, 0});
    for (Watched& watched : watched_) {
      if (watched.ended) continue;
      if (watched.descriptor < 0) {
        check(watched);
        settled = false;
      } else {
        queries.push_back({watched.descriptor, POLLIN, 0});
      }
    }
    const int timeout = retry() ? kRetryMs : settled ? -1 : kLookMs;
    if (::poll(queries.data(), queries.size(), timeout) <= 0) continue;
    if (queries[0].revents != 0) {
      std::uint64_t count = 0;
      while (::read(event_, &count, sizeof count) < 0 && errno == EINTR) {
      }
    }
    for (Watched& watched : watched_) {
      for (const pollfd& query : queries) {
        if (query.fd == watched.descriptor && query.revents != 0) check(watched);
      }
    }
  }
}

}  // namespace pyrdma::fabric::shm
