// Two nodes of a ShmCluster with one queue pair each, driven from the test's thread. The queue
// pairs are connected, or those of datagrams, or a DC initiator (of a) and its target.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/post_rules.h"
#include "fabric/shm/cluster.h"
#include "fabric/shm/device.h"

namespace pyrdma::fabric::shm {

struct End {
  Env* env = nullptr;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<CompletionQueue> completions;
  std::unique_ptr<SharedReceiveQueue> shared;  // of a DC target
  std::unique_ptr<QueuePair> qp;

  Device& device() { return env->device(); }
  Node& node() { return static_cast<ShmDevice&>(device()).node(); }
  void make(Env& of, const QpOptions& options) {
    env = &of;
    pd = device().create_protection_domain();
    region = device().allocate(*pd, 1 << 16, kAllAccess);
    completions = device().create_completion_queue(1024);
    if (options.dc_target) shared = device().create_shared_receive_queue(*pd, 64);
    qp = device().create_queue_pair(*pd, *completions, *completions, options, shared.get());
  }
  PostResult receive(const ReceiveRequest& request) {
    return shared ? shared->post_receive({&request, 1}) : qp->post_receive({&request, 1});
  }
  bool receive(const Sge& into) { return receive({0, &into, 1}).accepted == 1; }
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
    QpOptions other = options;
    other.dc_target = options.transport == Transport::kDc;
    b.make(cluster.env(1), other);
    handle = a.device().create_address_handle(*a.pd, b.qp->address());
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
  /// Posts a request of `a` to `b` and the start of its region.
  bool post(Opcode opcode, const Sge& local) {
    WorkRequest request;
    request.sges = &local;
    request.sge_count = 1;
    request.opcode = opcode;
    request.remote_addr = b.region->addr();
    request.rkey = b.region->rkey();
    if (is_addressed(a.qp->transport())) request.address_handle = handle.get();
    request.remote_qpn = b.qp->qp_num();
    request.remote_qkey = b.qp->address().qkey;
    return a.qp->post({&request, 1}).accepted == 1;
  }

  ShmCluster cluster;
  std::unique_ptr<AddressHandle> handle;  // of b, at a; outlives the requests that name it
  End a, b;
};

}  // namespace pyrdma::fabric::shm
