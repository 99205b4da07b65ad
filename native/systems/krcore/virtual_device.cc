#include "systems/krcore/virtual_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "base/error.h"
#include "fabric/post_rules.h"

namespace pyrdma::krcore {

namespace {

using fabric::QpState;

class VirtualDomain final : public fabric::ProtectionDomain {
 public:
  explicit VirtualDomain(std::uint64_t number) : number(number) {}
  const std::uint64_t number;
};

std::uint64_t number_of(fabric::ProtectionDomain& pd) {
  return static_cast<VirtualDomain&>(pd).number;
}

class VirtualRegion final : public fabric::MemoryRegion {
 public:
  VirtualRegion(Service& service, const Registration& made) : service_(service) {
    data_ = made.data;
    addr_ = made.addr;
    size_ = made.bytes;
    lkey_ = rkey_ = made.key;
    node_ = service.env().node();
  }
  ~VirtualRegion() override { service_.regions().remove(lkey_); }

 private:
  Service& service_;
};

class VirtualQueue;

/// A completion queue asks each of its queue pairs. The one after the last that had something is
/// the first.
class VirtualCompletions final : public fabric::CompletionQueue {
 public:
  VirtualCompletions(Service& service, std::uint32_t entries)
      : service_(service), entries_(entries), mutex_(service.env()) {}
  std::size_t poll(std::span<fabric::Completion> out) override;
  std::uint32_t entries() const override { return entries_; }
  bool overrun() const override { return false; }

  void add(VirtualQueue* queue, bool is_send) {
    const std::lock_guard<Mutex> lock(mutex_);
    sources_.push_back({queue, is_send});
  }
  void remove(VirtualQueue* queue) {
    const std::lock_guard<Mutex> lock(mutex_);
    std::erase_if(sources_, [&](const Source& source) { return source.queue == queue; });
  }

 private:
  struct Source {
    VirtualQueue* queue = nullptr;
    bool is_send = false;
  };
  Service& service_;
  std::uint32_t entries_;
  Mutex mutex_;
  std::vector<Source> sources_;
  std::size_t first_ = 0;
};

class VirtualQueue final : public fabric::QueuePair {
 public:
  VirtualQueue(Service& service, std::uint64_t domain, VirtualCompletions& sends,
               VirtualCompletions& receives, const fabric::QpOptions& options)
      : service_(service), options_(options), sends_(sends), receives_(receives) {
    VqpOptions made;
    made.send_entries = options.send_entries;
    made.receive_entries = options.receive_entries;
    made.max_sges = options.max_sges;
    made.max_inline = options.max_inline;
    made.domain = domain;
    id_ = service.create(made);
    if (!id_) {
      throw Error(ErrorCode::kExhausted,
                  "krcore: all virtual queue pairs of the node are in use; raise "
                  "Options::virtual_queue_pairs");
    }
    sends_.add(this, true);
    receives_.add(this, false);
  }
  ~VirtualQueue() override {
    sends_.remove(this);
    receives_.remove(this);
    service_.destroy(id_);
  }
  fabric::Transport transport() const override { return fabric::Transport::kRc; }
  std::uint32_t qp_num() const override { return id_.number(); }
  QpState state() const override {
    return service_.state(id_) == VqpState::kError ? QpState::kError : state_.load();
  }
  fabric::QpAddress address() const override {
    fabric::QpAddress address;
    address.node = service_.env().node();
    address.qp_num = id_.number();
    address.psn = service_.epoch(id_);
    address.reads = static_cast<std::uint16_t>(options_.max_outstanding_reads);
    return address;
  }

  fabric::PostResult post(std::span<const fabric::WorkRequest> requests) override {
    service_.env().charge(Cost::kSystemCall);
    const QpState now = state();
    if (now != QpState::kReadyToSend && now != QpState::kError)
      return {0, fabric::PostError::kInvalidState};
    constexpr std::uint32_t kAllowed = fabric::allowed_opcodes(fabric::Transport::kRc);
    std::size_t good = 0;
    while (good < requests.size() && fabric::is_postable(requests[good], options_, kAllowed))
      ++good;
    fabric::PostResult result;
    while (result.accepted < good) {
      // A list that is longer than the queue goes in pieces; a write with immediate takes two
      // places.
      const std::size_t most = std::max(1U, options_.send_entries / 2);
      const auto rest = requests.subspan(result.accepted, std::min(good - result.accepted, most));
      const PushResult pushed = service_.push(id_, rest);
      if (pushed.error == fabric::PostError::kNone) {
        result.accepted += pushed.accepted;
      } else if (pushed.error == fabric::PostError::kInvalid) {
        // A NIC carries out what is before the bad request, and ends the queue pair with it.
        if (pushed.accepted != 0) {
          const PushResult before = service_.push(id_, rest.first(pushed.accepted));
          result.accepted += before.accepted;
          if (before.accepted < pushed.accepted) return {result.accepted, before.error};
        }
        if (!service_.end_with(id_, requests[result.accepted], pushed.status))
          return {result.accepted, fabric::PostError::kQueueFull};
        ++result.accepted;
      } else {
        // Some may fit one by one.
        const PushResult one = service_.push(id_, rest.first(1));
        if (one.error == fabric::PostError::kQueueFull)
          return {result.accepted, fabric::PostError::kQueueFull};
        if (one.error == fabric::PostError::kNone) ++result.accepted;
      }
    }
    if (good < requests.size()) result.error = fabric::PostError::kInvalid;
    return result;
  }

  fabric::PostResult post_receive(std::span<const fabric::ReceiveRequest> requests) override {
    service_.env().charge(Cost::kSystemCall);
    if (state_ == QpState::kReset) return {0, fabric::PostError::kInvalidState};
    return service_.post_receive(id_, requests);
  }

  void modify(QpState next, const fabric::QpAddress* peer) override {
    service_.env().charge(Cost::kSystemCall);
    fabric::check_transition(state(), next);
    if (next == QpState::kReadyToReceive) {
      if (peer == nullptr || peer->node >= service_.env().nodes()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "krcore: the address names no node of the cluster; pass what the peer's "
                    "address() returned");
      }
      fabric::reads_in_flight(options_.max_outstanding_reads, *peer);  // checks the peer
      const ConnectResult result = service_.connect(id_, peer->node, 0, VqpId::of(peer->qp_num),
                                                    static_cast<std::uint16_t>(peer->psn));
      if (result != ConnectResult::kConnected) {
        const bool is_full = result == ConnectResult::kNoRoom;
        throw Error(is_full ? ErrorCode::kExhausted : ErrorCode::kUnavailable,
                    "krcore: node " + std::to_string(peer->node) +
                        (is_full ? " or this one has no room for a reliable connection; raise "
                                   "Options::rc_queue_pairs"
                                 : " has no service that answers"))
            .blaming({peer->node});
      }
    } else if (next == QpState::kError) {
      service_.fail(id_);
    } else if (next == QpState::kReset) {
      service_.reset(id_);
    }
    if (next != QpState::kError) state_ = next;
  }

  std::size_t poll_sends(std::span<fabric::Completion> out) { return service_.poll(id_, out); }
  std::size_t poll_receives(std::span<fabric::Completion> out);

 private:
  Service& service_;
  fabric::QpOptions options_;
  VirtualCompletions& sends_;
  VirtualCompletions& receives_;
  VqpId id_;
  std::atomic<QpState> state_{QpState::kReset};  // other threads post meanwhile
};

std::size_t VirtualQueue::poll_receives(std::span<fabric::Completion> out) {
  std::array<Message, 16> messages;
  const std::size_t most = std::min(out.size(), messages.size());
  const std::size_t count = service_.pop_messages(id_, std::span(messages).first(most), false);
  for (std::size_t i = 0; i < count; ++i) {
    fabric::Completion& wc = out[i];
    wc = {};
    wc.wr_id = messages[i].wr_id;
    wc.status = messages[i].status;
    wc.opcode = messages[i].opcode;
    wc.qp_num = id_.number();
    wc.byte_count = messages[i].bytes;
    wc.immediate = messages[i].immediate;
    wc.flags = messages[i].has_immediate ? fabric::kHasImmediate : 0;
    if (wc.status != fabric::Status::kSuccess) service_.fail(id_);
  }
  if (count == 0 && service_.state(id_) == VqpState::kError)
    return service_.flush_receives(id_, out);
  return count;
}

std::size_t VirtualCompletions::poll(std::span<fabric::Completion> out) {
  service_.env().charge(Cost::kSystemCall);
  const std::lock_guard<Mutex> lock(mutex_);
  std::size_t taken = 0;
  for (std::size_t i = 0; i < sources_.size() && taken < out.size(); ++i) {
    const std::size_t at = (first_ + i) % sources_.size();
    const Source& source = sources_[at];
    const std::size_t count = source.is_send ? source.queue->poll_sends(out.subspan(taken))
                                             : source.queue->poll_receives(out.subspan(taken));
    taken += count;
    if (taken == out.size()) first_ = at + 1;
  }
  return taken;
}

void check_count(const char* what, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument,
              "krcore: " + std::string(what) + " is " + std::to_string(value) +
                  "; it must be from " + std::to_string(least) + " to " + std::to_string(most));
}

[[noreturn]] void throw_missing(const char* what) {
  throw Error(ErrorCode::kUnavailable, std::string("krcore: virtual devices have no ") + what +
                                           "; use reliable connections and host memory");
}

}  // namespace

VirtualDevice::VirtualDevice(Service& service)
    : service_(service), name_("krcore/" + device().name()) {
  const fabric::Capabilities& able = device().capabilities();
  capabilities_ = able;
  capabilities_.uc = capabilities_.ud = capabilities_.dc = false;
  capabilities_.srq = capabilities_.device_memory = capabilities_.own_files = false;
  capabilities_.device_memory_bytes = 0;
  capabilities_.max_sges = std::min(able.max_sges, kMostSges);
  capabilities_.max_receive_strides = 1;
  capabilities_.max_queue_entries = 4096;
  capabilities_.max_completions = 4096;
  capabilities_.max_inline = service_.max_inline();
}

std::unique_ptr<fabric::ProtectionDomain> VirtualDevice::create_protection_domain() {
  service_.env().charge(Cost::kSystemCall);
  return std::make_unique<VirtualDomain>(service_.next_number());
}

std::unique_ptr<fabric::MemoryRegion> VirtualDevice::allocate(fabric::ProtectionDomain& pd,
                                                              std::size_t bytes,
                                                              std::uint32_t access) {
  service_.env().charge(Cost::kSystemCall);
  return std::make_unique<VirtualRegion>(service_,
                                         service_.regions().allocate(bytes, access, number_of(pd)));
}

std::unique_ptr<fabric::MemoryRegion> VirtualDevice::register_memory(fabric::ProtectionDomain& pd,
                                                                     void* data, std::size_t bytes,
                                                                     std::uint32_t access) {
  service_.env().charge(Cost::kSystemCall);
  return std::make_unique<VirtualRegion>(
      service_, service_.regions().add(data, bytes, access, number_of(pd)));
}

std::unique_ptr<fabric::MemoryRegion> VirtualDevice::allocate_device_memory(
    fabric::ProtectionDomain& /*pd*/, std::size_t /*bytes*/, std::uint32_t /*access*/) {
  throw_missing("memory on the NIC");
}

std::unique_ptr<fabric::CompletionQueue> VirtualDevice::create_completion_queue(
    std::uint32_t entries) {
  check_count("completion queue entries", entries, 1, capabilities_.max_completions);
  return std::make_unique<VirtualCompletions>(service_, entries);
}

std::unique_ptr<fabric::SharedReceiveQueue> VirtualDevice::create_shared_receive_queue(
    fabric::ProtectionDomain& /*pd*/, std::uint32_t /*entries*/, std::uint32_t /*max_sges*/) {
  throw_missing("shared receive queues");
}

std::unique_ptr<fabric::QueuePair> VirtualDevice::create_queue_pair(
    fabric::ProtectionDomain& pd, fabric::CompletionQueue& send_queue,
    fabric::CompletionQueue& receive_queue, const fabric::QpOptions& options,
    fabric::SharedReceiveQueue* shared_receives) {
  service_.env().charge(Cost::kSystemCall);
  fabric::check_receive_strides(options, capabilities_, shared_receives != nullptr);
  if (options.transport != fabric::Transport::kRc || shared_receives != nullptr)
    throw_missing("other transports than RC, and no shared receive queues");
  check_count("send_entries", options.send_entries, 1, capabilities_.max_queue_entries);
  check_count("receive_entries", options.receive_entries, 1, capabilities_.max_queue_entries);
  check_count("max_sges", options.max_sges, 1, capabilities_.max_sges);
  check_count("max_inline", options.max_inline, 0, capabilities_.max_inline);
  check_count("retry_count", options.retry_count, 0, 7);
  check_count("rnr_retry", options.rnr_retry, 0, fabric::kInfiniteRetry);
  fabric::check_queue_pair_access(options.access);
  fabric::check_no_path("krcore", options);
  return std::make_unique<VirtualQueue>(service_, number_of(pd),
                                        static_cast<VirtualCompletions&>(send_queue),
                                        static_cast<VirtualCompletions&>(receive_queue), options);
}

std::unique_ptr<fabric::AddressHandle> VirtualDevice::create_address_handle(
    fabric::ProtectionDomain& /*pd*/, const fabric::QpAddress& /*peer*/,
    const fabric::PathOptions& path) {
  fabric::check_no_path("krcore", path);
  throw_missing("datagrams");
}

}  // namespace pyrdma::krcore
