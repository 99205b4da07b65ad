// Two nodes of a ShmCluster with one connected queue pair each, driven from the test's thread.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/shm/cluster.h"
#include "fabric/shm/device.h"

namespace pyrdma::fabric::shm {

struct End {
  Env* env = nullptr;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<CompletionQueue> completions;
  std::unique_ptr<QueuePair> qp;

  Device& device() { return env->device(); }
  Node& node() { return static_cast<ShmDevice&>(device()).node(); }
  void make(Env& of, const QpOptions& options) {
    env = &of;
    pd = device().create_protection_domain();
    region = device().allocate(*pd, 1 << 16, kAllAccess);
    completions = device().create_completion_queue(1024);
    qp = device().create_queue_pair(*pd, *completions, *completions, options);
  }
  /// Returns the completions until there are `count`, or two seconds are over.
  std::vector<Completion> wait(std::size_t count) {
    std::vector<Completion> got;
    Completion batch[16];
    env->poll_until(
        [&] {
          const std::size_t n = completions->poll(batch);
          got.insert(got.end(), batch, batch + n);
          return got.size() >= count;
        },
        env->now() + 2 * kSecond);
    return got;
  }
};

struct Pair {
  explicit Pair(const QpOptions& options = {}, std::uint32_t nodes = 2) : cluster({nodes, 1}) {
    a.make(cluster.env(0), options);
    b.make(cluster.env(1), options);
    connect();
  }
  void connect() {
    a.qp->connect(b.qp->address());
    b.qp->connect(a.qp->address());
  }
  void reconnect() {
    a.qp->modify(QpState::kReset);
    b.qp->modify(QpState::kReset);
    connect();
  }
  ShmCluster cluster;
  End a, b;
};

}  // namespace pyrdma::fabric::shm
