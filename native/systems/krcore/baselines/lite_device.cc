#include "systems/krcore/baselines/lite_device.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "fabric/post_rules.h"

namespace pyrdma::krcore {

namespace {

[[noreturn]] void throw_missing(const char* what) {
  throw Error(ErrorCode::kUnavailable, std::string("LITE has no ") + what +
                                           "; use reads, writes and atomics on memory that its "
                                           "device has allocated");
}

}  // namespace

class LiteQueue final : public fabric::QueuePair {
 public:
  LiteQueue(LiteDevice& device, const fabric::QpOptions& options)
      : device_(device), options_(options) {
    const std::lock_guard<Mutex> lock(device.mutex_);
    number_ = device.next_number_++;
    requests_ = &device.requests_.emplace_back();
    for (std::uint32_t i = 0; i < options.send_entries; ++i) requests_->emplace_back();
  }
  fabric::Transport transport() const override { return fabric::Transport::kRc; }
  std::uint32_t qp_num() const override { return number_; }
  fabric::QpState state() const override { return state_; }
  fabric::QpAddress address() const override {
    fabric::QpAddress address;
    address.node = device_.lite_.env().node();
    address.qp_num = number_;
    address.reads = static_cast<std::uint16_t>(options_.max_outstanding_reads);
    return address;
  }

  fabric::PostResult post(std::span<const fabric::WorkRequest> requests) override {
    if (state_ != fabric::QpState::kReadyToSend) return {0, fabric::PostError::kInvalidState};
    constexpr std::uint32_t kAllowed =
        fabric::bit(fabric::Opcode::kRead) | fabric::bit(fabric::Opcode::kWrite) | fabric::kAtomics;
    std::uint32_t accepted = 0;
    for (const fabric::WorkRequest& request : requests) {
      if (!fabric::is_postable(request, options_, kAllowed))
        return {accepted, fabric::PostError::kInvalid};
      const bool is_read = request.opcode == fabric::Opcode::kRead;
      // What the queue pair before this call has still under way may end only at a poll.
      const bool must_wait = changes_ != 0 || (!is_read && under_way() != 0);
      if (must_wait || under_way() == options_.send_entries)
        return {accepted, fabric::PostError::kQueueFull};
      const std::uint64_t place = tail_++;
      rows_[place % rows_.size()] = {request.wr_id, request.opcode,
                                     (request.flags & fabric::kSignaled) != 0};
      changes_ += is_read ? 0 : 1;
      device_.lite_.post(request, node_, at(place));
      ++accepted;
    }
    return {accepted, fabric::PostError::kNone};
  }

  fabric::PostResult post_receive(std::span<const fabric::ReceiveRequest> /*requests*/) override {
    return {0, fabric::PostError::kInvalid};
  }

  void modify(fabric::QpState next, const fabric::QpAddress* peer) override {
    fabric::check_transition(state_, next);
    if (next == fabric::QpState::kReadyToReceive) {
      if (peer == nullptr || !device_.lite_.connect(peer->node)) {
        throw Error(ErrorCode::kUnavailable,
                    "LITE: no node answers at the peer's address; pass "
                    "the address of a node that has a Lite");
      }
      node_ = peer->node;
    }
    state_ = next;
  }

  /// Takes what has ended, in order.
  std::size_t poll(std::span<fabric::Completion> out) {
    std::size_t taken = 0;
    while (taken < out.size() && under_way() != 0 && device_.lite_.has_ended(at(head_))) {
      const Row row = rows_[head_ % rows_.size()];
      const fabric::Status status = at(head_).status();
      ++head_;
      changes_ -= row.opcode == fabric::Opcode::kRead ? 0 : 1;
      if (status != fabric::Status::kSuccess) state_ = fabric::QpState::kError;
      if (!row.is_signaled && status == fabric::Status::kSuccess) continue;
      fabric::Completion& wc = out[taken++];
      wc = {};
      wc.wr_id = row.wr_id;
      wc.status = status;
      wc.opcode = row.opcode;
      wc.qp_num = number_;
    }
    return taken;
  }

 private:
  struct Row {
    std::uint64_t wr_id = 0;
    fabric::Opcode opcode = fabric::Opcode::kRead;
    bool is_signaled = false;
  };
  std::uint64_t under_way() const { return tail_ - head_; }
  LiteRequest& at(std::uint64_t place) { return (*requests_)[place % requests_->size()]; }

  LiteDevice& device_;
  const fabric::QpOptions options_;
  std::uint32_t number_ = 0;
  fabric::QpState state_ = fabric::QpState::kReset;
  NodeId node_ = fabric::kNoNode;
  std::deque<LiteRequest>* requests_;
  std::vector<Row> rows_ = std::vector<Row>(options_.send_entries);
  std::uint64_t head_ = 0, tail_ = 0;
  std::uint32_t changes_ = 0;  // requests under way that change memory
};

namespace {

class LiteDomain final : public fabric::ProtectionDomain {};

class LiteCompletions final : public fabric::CompletionQueue {
 public:
  LiteCompletions(Env& env, std::uint32_t entries) : env_(env), entries_(entries) {}
  std::size_t poll(std::span<fabric::Completion> out) override {
    env_.charge(Cost::kSystemCall);
    std::size_t taken = 0;
    for (LiteQueue* queue : queues_) taken += queue->poll(out.subspan(taken));
    return taken;
  }
  std::uint32_t entries() const override { return entries_; }
  bool overrun() const override { return false; }
  void add(LiteQueue* queue) { queues_.push_back(queue); }

 private:
  Env& env_;
  std::uint32_t entries_;
  std::vector<LiteQueue*> queues_;
};

}  // namespace

LiteDevice::LiteDevice(Lite& lite)
    : lite_(lite), mutex_(lite.env()), name_("lite/" + lite.env().device().name()) {
  capabilities_ = lite.env().device().capabilities();
  capabilities_.uc = capabilities_.ud = capabilities_.dc = capabilities_.srq = false;
  capabilities_.register_own_memory = capabilities_.device_memory = false;
}

std::unique_ptr<fabric::ProtectionDomain> LiteDevice::create_protection_domain() {
  return std::make_unique<LiteDomain>();
}

std::unique_ptr<fabric::MemoryRegion> LiteDevice::allocate(fabric::ProtectionDomain& /*pd*/,
                                                           std::size_t bytes,
                                                           std::uint32_t access) {
  fabric::check_region_access(access);
  return lite_.allocate(bytes);
}

std::unique_ptr<fabric::CompletionQueue> LiteDevice::create_completion_queue(
    std::uint32_t entries) {
  return std::make_unique<LiteCompletions>(lite_.env(), entries);
}

std::unique_ptr<fabric::QueuePair> LiteDevice::create_queue_pair(
    fabric::ProtectionDomain& /*pd*/, fabric::CompletionQueue& send_queue,
    fabric::CompletionQueue& /*receive_queue*/, const fabric::QpOptions& options,
    fabric::SharedReceiveQueue* shared_receives) {
  if (options.transport != fabric::Transport::kRc || shared_receives != nullptr)
    throw_missing("other transports than RC, and no shared receive queues");
  if (options.send_entries < 1 || options.send_entries > capabilities_.max_queue_entries) {
    throw Error(ErrorCode::kInvalidArgument,
                "LITE: send_entries is " + std::to_string(options.send_entries) +
                    "; it must be from 1 to " + std::to_string(capabilities_.max_queue_entries));
  }
  auto queue = std::make_unique<LiteQueue>(*this, options);
  static_cast<LiteCompletions&>(send_queue).add(queue.get());
  return queue;
}

std::unique_ptr<fabric::MemoryRegion> LiteDevice::register_memory(fabric::ProtectionDomain& /*pd*/,
                                                                  void* /*data*/,
                                                                  std::size_t /*bytes*/,
                                                                  std::uint32_t /*access*/) {
  throw_missing("memory of its users");
}

std::unique_ptr<fabric::MemoryRegion> LiteDevice::allocate_device_memory(
    fabric::ProtectionDomain& /*pd*/, std::size_t /*bytes*/, std::uint32_t /*access*/) {
  throw_missing("memory on the NIC");
}

std::unique_ptr<fabric::SharedReceiveQueue> LiteDevice::create_shared_receive_queue(
    fabric::ProtectionDomain& /*pd*/, std::uint32_t /*entries*/, std::uint32_t /*max_sges*/) {
  throw_missing("shared receive queues");
}

std::unique_ptr<fabric::AddressHandle> LiteDevice::create_address_handle(
    fabric::ProtectionDomain& /*pd*/, const fabric::QpAddress& /*peer*/,
    const fabric::PathOptions& /*path*/) {
  throw_missing("datagrams");
}

}  // namespace pyrdma::krcore
