// Draws work requests that are wrong in some field, and makes their targets: regions of all kinds,
// connections of all transports.
#pragma once
#include "base/rng.h"
#include "fabric/contract_worlds_test.h"
#include "fabric/malformed_model_test.h"

namespace pyrdma::fabric::malformed {

/// A node's device with good, weak and forbidden regions.
struct Party {
  Party(World& world, NodeId node)
      : env(world.env(node)),
        device(env.device()),
        pd(device.create_protection_domain()),
        foreign(device.create_protection_domain()) {
    add(*pd, 40000, kAllAccess);
    add(*pd, 4096, kAllAccess);
    add(*pd, 4096, kRemoteRead);
    add(*pd, 4096, kLocalWrite | kRemoteWrite);
    add(*pd, 4096, kLocalWrite | kRemoteAtomic);
    add(*pd, 4096, kLocalWrite);
    add(*foreign, 4096, kAllAccess);
    {
      const auto gone = device.allocate(*pd, 4096, kAllAccess);
      memory.regions.push_back({gone->addr(), 4096, gone->lkey(), kAllAccess, false, nullptr, {}});
    }
    // Several pieces of this region are longer than the longest message. No test touches the
    // region.
    big = device.allocate(*pd, std::size_t{1} << 28, kAllAccess);
    memory.regions.push_back(
        {big->addr(), big->size(), big->lkey(), kAllAccess, true, nullptr, {}});
  }
  void add(ProtectionDomain& domain, std::size_t size, std::uint32_t access) {
    owned.push_back(device.allocate(domain, size, access));
    const MemoryRegion& region = *owned.back();
    for (std::size_t i = 0; i < size; ++i)
      region.data()[i] = static_cast<std::byte>(mix64(i ^ region.rkey()));
    memory.regions.push_back({region.addr(),
                              size,
                              region.lkey(),
                              access,
                              &domain == pd.get(),
                              region.data(),
                              {region.data(), region.data() + size}});
  }
  Env& env;
  Device& device;
  std::unique_ptr<ProtectionDomain> pd, foreign;
  std::vector<std::unique_ptr<MemoryRegion>> owned;
  std::unique_ptr<MemoryRegion> big;
  ModelMemory memory;
};

/// A queue pair at each party, with queues of its own. `shares`: the responder takes receives from
/// a shared queue, as a dynamic target always does.
struct Link {
  Link(Party& a, Party& b, const QpOptions& wanted, std::uint32_t responder_access,
       bool shares = false)
      : options(wanted),
        sends(a.device.create_completion_queue(64)),
        receives(b.device.create_completion_queue(64)),
        unused_a(a.device.create_completion_queue(64)),
        unused_b(b.device.create_completion_queue(64)) {
    options.retry_count = options.rnr_retry = 0;
    options.timeout_us = options.rnr_timer_us = 1;
    qa = a.device.create_queue_pair(*a.pd, *sends, *unused_a, options);
    options.access = responder_access;
    if (shares)
      shared =
          b.device.create_shared_receive_queue(*b.pd, options.receive_entries, options.max_sges);
    options.dc_target = options.transport == Transport::kDc;
    qb = b.device.create_queue_pair(*b.pd, *unused_b, *receives, options, shared.get());
    model.shares_receives = shares;
    model.transport = options.transport;
    model.max_sges = options.max_sges;
    model.max_inline = options.max_inline;
    model.max_datagram = a.device.capabilities().max_datagram;
    model.responder_access = responder_access;
    model.responder_qpn = qb->qp_num();
    model.responder_qkey = options.qkey;
    handle = a.device.create_address_handle(*a.pd, qb->address());
    renew();
  }
  void renew() {
    qa->modify(QpState::kReset);
    qb->modify(QpState::kReset);
    qa->connect(qb->address());
    qb->connect(qa->address());
    model.requester = model.responder = QpState::kReadyToSend;
    if (!model.shares_receives) model.receive.reset();
  }
  PostResult post_receive(const ReceiveRequest& receive) {
    return shared != nullptr ? shared->post_receive({&receive, 1})
                             : qb->post_receive({&receive, 1});
  }
  QpOptions options;
  std::unique_ptr<CompletionQueue> sends, receives, unused_a, unused_b;
  std::unique_ptr<SharedReceiveQueue> shared;
  std::unique_ptr<QueuePair> qa, qb;
  std::unique_ptr<AddressHandle> handle;
  ModelLink model;
};

/// Good traffic beside the bad.
class Neighbour {
 public:
  Neighbour(World& world) : a_(world, 0, 4096), b_(world, 1, 4096) {
    qa_ = a_.queue_pair();
    qb_ = b_.queue_pair();
    qa_->connect(qb_->address());
    qb_->connect(qa_->address());
  }
  void begin() {
    *a_.word(0) = ++number_;
    ASSERT_TRUE(qa_->write(a_.memory->sge(0, 8), b_.memory->remote(), 64, number_));
    ASSERT_TRUE(qa_->read(a_.memory->sge(8, 8), b_.memory->remote(), 64, number_));
  }
  void end() {
    for (int i = 0; i < 2; ++i) {
      const Completion completion = a_.await_send();
      ASSERT_EQ(completion.wr_id, number_);
      ASSERT_EQ(completion.status, Status::kSuccess);
    }
    ASSERT_EQ(*a_.word(8), number_);
  }

 private:
  Side a_, b_;
  std::unique_ptr<QueuePair> qa_, qb_;
  std::uint64_t number_ = 0;
};

inline QpOptions options_of(Transport transport, std::uint32_t max_sges, std::uint32_t max_inline) {
  QpOptions options;
  options.transport = transport;
  options.max_sges = max_sges;
  options.max_inline = max_inline;
  options.send_entries = 16;
  options.receive_entries = 16;
  return options;
}

/// Draws requests whose fields are each right most of the time.
class Generator {
 public:
  Generator(Party& a, Party& b, std::uint64_t seed) : a_(a), b_(b), rng_(seed) {}
  bool one_in(std::uint64_t n) { return rng_.below(n) == 0; }
  std::uint64_t below(std::uint64_t n) { return rng_.below(n); }

  const WorkRequest& request(Link& link) {
    WorkRequest& r = request_;
    r = {};
    r.wr_id = rng_();
    r.opcode = one_in(40) ? static_cast<Opcode>(rng_.below(256)) : opcode(link);
    r.flags = static_cast<std::uint8_t>(rng_() & (one_in(16) ? 0xf8 | kFence : kFence));
    if (!one_in(8)) r.flags |= kSignaled;
    if (one_in(6)) r.flags |= kInline;
    r.immediate = static_cast<std::uint32_t>(rng_());
    pieces(link, r);
    target(r);
    r.compare_add = one_in(2) ? rng_() : 0;
    r.swap = rng_();
    if (link.model.is_addressed()) {
      r.address_handle = one_in(20) ? nullptr : link.handle.get();
      r.remote_qpn =
          one_in(12) ? static_cast<std::uint32_t>(rng_()) & 0xffffff : link.model.responder_qpn;
      r.remote_qkey = one_in(12) ? static_cast<std::uint32_t>(rng_()) : link.model.responder_qkey;
    }
    return r;
  }

  const ReceiveRequest& receive(const Link& link) {
    ReceiveRequest& r = receive_;
    r = {rng_(), receive_sges_, 0};
    if (one_in(20)) {  // no queue accepts this receive
      r.sge_count = link.model.max_sges + 1 + static_cast<std::uint32_t>(rng_.below(3));
      if (one_in(4)) r.sge_count = ~0U;
      if (one_in(2)) r = {r.wr_id, nullptr, 1};
      return r;
    }
    r.sge_count = one_in(16) ? 0 : one_in(3) ? some_sges(link) : 1;
    const std::uint64_t least = one_in(4) ? 8 : 600;
    for (std::uint32_t i = 0; i < r.sge_count; ++i)
      receive_sges_[i] = piece(b_, one_in(12) ? 0 : least + rng_.below(1000));
    return r;
  }

 private:
  Opcode opcode(const Link& link) {
    const bool only_sends = link.model.transport == Transport::kUd && !one_in(10);
    return static_cast<Opcode>(only_sends ? 2 + rng_.below(2) : rng_.below(7));
  }
  std::uint32_t some_sges(const Link& link) {
    return 1 + static_cast<std::uint32_t>(rng_.below(link.model.max_sges));
  }
  const ModelRegion& region(Party& party) {
    const auto& all = party.memory.regions;
    return one_in(8) ? all[rng_.below(all.size() - 1)] : all[rng_.below(2)];
  }
  /// Draws an address in a region, at its edges, or outside all regions.
  std::uint64_t place(const ModelRegion& region, std::uint64_t length) {
    switch (rng_.below(32)) {
      case 0:
        return region.addr + region.size - length / 2;
      case 1:
        return region.addr - 1 - rng_.below(16);
      case 2:
        return ~std::uint64_t{0} - rng_.below(64);
      case 3:
        return rng_();
      case 4:
        return region.addr + region.size;
      default:
        return region.addr + rng_.below(region.size - std::min(length, region.size) + 1);
    }
  }
  Sge piece(Party& party, std::uint64_t length) {
    const ModelRegion& from = region(party);
    Sge sge{place(from, length), static_cast<std::uint32_t>(length), from.key};
    if (one_in(32)) sge.lkey = static_cast<std::uint32_t>(rng_());
    if (one_in(64)) sge.length = ~0U - static_cast<std::uint32_t>(rng_.below(3));
    return sge;
  }

  void pieces(const Link& link, WorkRequest& r) {
    r.sges = sges_;
    const bool atomic = is_atomic(r.opcode) && !one_in(4);
    r.sge_count = one_in(2) || atomic ? 1 : one_in(8) ? 0 : some_sges(link);
    std::uint64_t length = one_in(4) ? rng_.below(9) : rng_.below(300);
    if (one_in(50)) length = 5000 + rng_.below(35000);
    if (atomic) length = 8;
    if (atomic && link.model.max_sges > 1 && one_in(2)) {
      r.sge_count = 2;
      length = 4;
    }
    if (one_in(40)) {
      r.sge_count = one_in(4) ? ~0U : link.model.max_sges + 1;
      if (one_in(4)) r.sges = nullptr;
    }
    if (one_in(60)) r.sges = nullptr;
    const std::uint32_t written = std::min<std::uint32_t>(r.sge_count, kMostSges);
    if ((r.flags & kInline) != 0) {  // the caller's own memory may be unregistered
      for (std::uint32_t i = 0; i < written; ++i)
        sges_[i] = {reinterpret_cast<std::uint64_t>(own_) + rng_.below(64),
                    one_in(60) ? ~0U : static_cast<std::uint32_t>(rng_.below(40)),
                    static_cast<std::uint32_t>(rng_())};
      return;
    }
    for (std::uint32_t i = 0; i < written; ++i) sges_[i] = piece(a_, length);
    if (link.model.max_sges == kMostSges && one_in(40)) {  // allowed pieces, too long together
      r.sge_count = 9 + static_cast<std::uint32_t>(rng_.below(8));
      for (Sge& sge : sges_) sge = a_.big->sge(0, 1U << 28);
    }
  }

  void target(WorkRequest& r) {
    std::uint64_t length = 0;
    for (std::uint32_t i = 0;
         r.sges != nullptr && i < std::min<std::uint32_t>(r.sge_count, kMostSges); ++i)
      length += r.sges[i].length;
    const ModelRegion& to = region(b_);
    r.remote_addr = place(to, length);
    if (is_atomic(r.opcode) && !one_in(8)) r.remote_addr &= ~std::uint64_t{7};
    r.rkey = one_in(24) ? static_cast<std::uint32_t>(rng_()) : to.key;
  }

  static constexpr std::uint32_t kMostSges = 16;
  Party& a_;
  Party& b_;
  Rng rng_;
  WorkRequest request_;
  ReceiveRequest receive_;
  Sge sges_[kMostSges], receive_sges_[kMostSges];
  std::byte own_[256] = {};
};

}  // namespace pyrdma::fabric::malformed
