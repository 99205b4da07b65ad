#include "fabric/verbs/ib/device.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "env/trace.h"
#include "fabric/verbs/ib/completion_queue.h"
#include "fabric/verbs/ib/dynamic_queue_pair.h"
#include "fabric/verbs/ib/memory.h"
#include "fabric/verbs/ib/queue_pair.h"
#include "fabric/verbs/ib/shared_receive_queue.h"
#include "fabric/verbs/ib/translate.h"
#include "fabric/verbs/ib/trial.h"

namespace pyrdma::fabric::verbs {
namespace {

ibv_context* open_by_name(const std::string& name) {
  const Library& ib = Library::get();
  int count = 0;
  ibv_device** devices = (ib.get_device_list)(&count);
  ibv_context* context = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count; ++i) {
    if (name != ib.get_device_name(devices[i])) continue;
    context = ib.open_device(devices[i]);
    error = errno;
  }
  if (devices != nullptr) ib.free_device_list(devices);
  if (context == nullptr)
    throw_failed("open device " + name, error,
                 "let this user read and write /dev/infiniband/uverbs*");
  return context;
}

}  // namespace

void throw_failed(const std::string& what, int error, const std::string& remedy) {
  const ErrorCode code = error == ENOMEM || error == EMFILE || error == ENOSPC
                             ? ErrorCode::kExhausted
                         : error == EINVAL ? ErrorCode::kInvalidArgument
                                           : ErrorCode::kUnavailable;
  const std::string limited = error == ENOMEM ? locked_memory_remedy() : "";
  const std::string& advice = limited.empty() ? remedy : limited;
  throw Error(code, "verbs: could not " + what + ": " + std::strerror(error) +
                        (advice.empty() ? "" : "; " + advice));
}

std::unique_ptr<NodeDevice> open_device(Node& node, const Wish& wish) {
  return std::make_unique<VerbsDevice>(node, choose(find_candidates(), wish));
}

// ---- domains and address handles ----

VerbsDomain::VerbsDomain(ibv_context* context) {
  ibv_pd* pd = Library::get().alloc_pd(context);
  if (pd == nullptr) throw_failed("allocate a protection domain", errno);
  pd_.reset(pd, [](ibv_pd* last) { Library::get().dealloc_pd(last); });
}

VerbsAddressHandle::VerbsAddressHandle(const VerbsDomain& domain, ibv_ah_attr attributes)
    : domain_(domain.share()), handle_(Library::get().create_ah(domain.pd(), &attributes)) {
  if (handle_ == nullptr)
    throw_failed("create an address handle", errno,
                 "check that the peer's address is reachable from here");
}
VerbsAddressHandle::~VerbsAddressHandle() { Library::get().destroy_ah(handle_); }

// ---- the device ----

VerbsDevice::VerbsDevice(Node& node, const Choice& choice)
    : node_(node), choice_(choice), context_(open_by_name(choice.device)) {
  node_.env().trace().event(node_.env().now(), "verbs_device", choice_.reason);
  try {
    read_capabilities();
  } catch (...) {
    Library::get().close_device(context_);
    throw;
  }
  ::fcntl(context_->async_fd, F_SETFL, ::fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK);
}

VerbsDevice::~VerbsDevice() { Library::get().close_device(context_); }

void VerbsDevice::read_capabilities() {
  const Library& ib = Library::get();
  int failure = ib.query_device(context_, &attributes_);
  if (failure == 0) {
    failure = (ib.query_port)(context_, port(), reinterpret_cast<_compat_ibv_port_attr*>(&port_));
  }
  if (failure == 0) failure = ib.query_gid(context_, port(), choice_.gid_index, &gid_);
  if (failure != 0) throw_failed("query device " + choice_.device, failure);
  Capabilities& c = capabilities_;
  c.register_own_memory = c.own_files = true;
  read_queue_capabilities(attributes_, Trial(ib, context_), &c);
  c.max_datagram = bytes_of(port_.active_mtu);
  constexpr std::uint32_t kMellanox = 0x2c9;
  c.least_timeout_us = is_soft_roce()                       ? kSoftRoceTimeoutUs
                       : attributes_.vendor_id == kMellanox ? 500'000
                                                            : 0;
  c.max_message = port_.max_msg_sz;
  // Soft-RoCE's rate is that of the CPU, whatever its interface says.
  if (!is_soft_roce())
    c.link_gbps = link_gbps_of(port_.active_width, port_.active_speed,
                               port_.link_layer == IBV_LINK_LAYER_ETHERNET);
  c.swaps_lose_writes = is_soft_roce();
  // ibv_query_device_ex is avoided: its fallback would need the library when this one is loaded.
  ibv_device_attr_ex more{};
  const verbs_context* extended = verbs_get_ctx_op(context_, query_device_ex);
  if (extended != nullptr &&
      extended->query_device_ex(context_, nullptr, &more, sizeof more) == 0) {
    c.device_memory_bytes = more.max_dm_size;
    c.device_memory = more.max_dm_size > 0;
  }
  c.dc = c.srq && has_dynamic_transport(context_);
}

void VerbsDevice::check_count(const char* what, std::uint64_t value, std::uint64_t least,
                              std::uint64_t most) const {
  if (value >= least && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(what) + " is " + std::to_string(value) +
                                               "; this device allows " + std::to_string(least) +
                                               " to " + std::to_string(most));
}

void VerbsDevice::check_transport(Transport transport) const {
  const Capabilities& c = capabilities_;
  const bool is_there[] = {c.rc, c.uc, c.ud, c.dc};  // by Transport
  if (is_there[static_cast<std::size_t>(transport)]) return;
  throw Error(ErrorCode::kUnavailable,
              "verbs: device " + choice_.device + " has no " + to_string(transport) + " transport" +
                  (transport == Transport::kDc ? " (mlx5 has it from ConnectX-4 on)" : "") +
                  "; use RC, or fabric shm or sim");
}

void VerbsDevice::check_path(const PathOptions& path) const {
  check_count("service_level", path.service_level, 0, kMaxServiceLevel);
  check_count("traffic_class", path.traffic_class, 0, kMaxTrafficClass);
}

std::unique_ptr<ProtectionDomain> VerbsDevice::create_protection_domain() {
  return std::make_unique<VerbsDomain>(context_);
}

std::unique_ptr<MemoryRegion> VerbsDevice::allocate(ProtectionDomain& pd, std::size_t bytes,
                                                    std::uint32_t access) {
  check_region(bytes, access);
  return std::make_unique<VerbsRegion>(*this, static_cast<VerbsDomain&>(pd), nullptr, bytes,
                                       access);
}

std::unique_ptr<MemoryRegion> VerbsDevice::register_memory(ProtectionDomain& pd, void* data,
                                                           std::size_t bytes,
                                                           std::uint32_t access) {
  check_region(bytes, access);
  if (data == nullptr)
    throw Error(ErrorCode::kInvalidArgument, "the memory to register is null; use allocate()");
  return std::make_unique<VerbsRegion>(*this, static_cast<VerbsDomain&>(pd), data, bytes, access);
}

void VerbsDevice::check_region(std::size_t bytes, std::uint32_t access) const {
  check_count("region size", bytes, 1, attributes_.max_mr_size);
  check_region_access(access);
}

std::unique_ptr<MemoryRegion> VerbsDevice::allocate_device_memory(ProtectionDomain& pd,
                                                                  std::size_t bytes,
                                                                  std::uint32_t access) {
  if (!capabilities_.device_memory) {
    throw Error(ErrorCode::kUnavailable,
                "verbs: device " + choice_.device + " has no device memory; use allocate()");
  }
  check_count("device memory size", bytes, 1, capabilities_.device_memory_bytes);
  check_region_access(access);
  return std::make_unique<DeviceRegion>(*this, static_cast<VerbsDomain&>(pd), bytes, access);
}

std::unique_ptr<CompletionQueue> VerbsDevice::create_completion_queue(std::uint32_t entries) {
  check_count("completion queue entries", entries, 1, capabilities_.max_completions);
  return std::make_unique<VerbsCompletionQueue>(*this, entries);
}

std::unique_ptr<SharedReceiveQueue> VerbsDevice::create_shared_receive_queue(
    ProtectionDomain& pd, std::uint32_t entries, std::uint32_t max_sges) {
  if (!capabilities_.srq) {
    throw Error(ErrorCode::kUnavailable,
                "verbs: device " + choice_.device +
                    " has no shared receive queues; give each queue pair its own receives");
  }
  check_count("shared receive queue entries", entries, 1, capabilities_.max_queue_entries);
  check_count("shared receive queue max_sges", max_sges, 1, capabilities_.max_sges);
  return std::make_unique<VerbsSharedReceiveQueue>(*this, static_cast<VerbsDomain&>(pd), entries,
                                                   max_sges);
}

std::unique_ptr<QueuePair> VerbsDevice::create_queue_pair(ProtectionDomain& pd,
                                                          CompletionQueue& send_queue,
                                                          CompletionQueue& receive_queue,
                                                          const QpOptions& options,
                                                          SharedReceiveQueue* shared_receives) {
  const bool dynamic = options.transport == Transport::kDc;
  check_transport(options.transport);
  if (options.dc_target && (!dynamic || shared_receives == nullptr)) {
    throw Error(ErrorCode::kInvalidArgument,
                "dc_target needs the DC transport and a shared receive queue");
  }
  check_count("send_entries", options.send_entries, 1, capabilities_.max_queue_entries);
  if (shared_receives == nullptr)
    check_count("receive_entries", options.receive_entries, 1, capabilities_.max_queue_entries);
  check_count("max_sges", options.max_sges, 1, capabilities_.max_sges);
  check_count("max_inline", options.max_inline, 0, capabilities_.max_inline);
  check_count("max_outstanding_reads", options.max_outstanding_reads, 1,
              capabilities_.max_outstanding_reads);
  check_count("retry_count", options.retry_count, 0, 7);
  check_count("rnr_retry", options.rnr_retry, 0, kInfiniteRetry);
  check_queue_pair_access(options.access);
  check_receive_strides(options, capabilities_, shared_receives != nullptr);
  check_count("pkey_index", options.pkey_index, 0,
              std::max<std::uint64_t>(port_.pkey_tbl_len, 1) - 1);
  check_path(options.path);
  if (dynamic) {
    return std::make_unique<VerbsDynamicQueuePair>(
        *this, static_cast<VerbsDomain&>(pd), static_cast<VerbsCompletionQueue&>(send_queue),
        static_cast<VerbsCompletionQueue&>(receive_queue), options,
        static_cast<VerbsSharedReceiveQueue*>(shared_receives));
  }
  return std::make_unique<VerbsQueuePair>(
      *this, static_cast<VerbsDomain&>(pd), static_cast<VerbsCompletionQueue&>(send_queue),
      static_cast<VerbsCompletionQueue&>(receive_queue), options,
      static_cast<VerbsSharedReceiveQueue*>(shared_receives));
}

std::unique_ptr<AddressHandle> VerbsDevice::create_address_handle(ProtectionDomain& pd,
                                                                  const QpAddress& peer,
                                                                  const PathOptions& path) {
  check_path(path);
  return std::make_unique<VerbsAddressHandle>(static_cast<VerbsDomain&>(pd), route_to(peer, path));
}

QpAddress VerbsDevice::address() const {
  QpAddress address;
  address.node = node_.self();
  std::memcpy(address.gid, gid_.raw, sizeof address.gid);
  address.lid = port_.lid;
  address.path = static_cast<std::uint16_t>(kind_of_path() << 8 | port_.active_mtu);
  return address;
}

bool VerbsDevice::is_port_up() const {
  ibv_port_attr now{};
  const int failure =
      (Library::get().query_port)(context_, port(), reinterpret_cast<_compat_ibv_port_attr*>(&now));
  return failure == 0 && now.state == IBV_PORT_ACTIVE;
}

int VerbsDevice::rights_of(std::uint32_t access) const {
  return access_to(capabilities_.atomics ? access : access & ~std::uint32_t{kRemoteAtomic});
}

std::uint16_t VerbsDevice::kind_of_path() const {
  return static_cast<std::uint16_t>(1 + static_cast<int>(choice_.type));
}

ibv_ah_attr VerbsDevice::route_to(const QpAddress& peer, const PathOptions& path) const {
  if (peer.node >= node_.nodes()) {
    throw Error(ErrorCode::kInvalidArgument, "the peer's node is " + std::to_string(peer.node) +
                                                 "; give 0 to " +
                                                 std::to_string(node_.nodes() - 1));
  }
  const int theirs = peer.path >> 8;
  if (theirs != 0 && theirs != kind_of_path()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "the peer, node " + std::to_string(peer.node) + ", uses " +
            (theirs > 3 ? "an unknown kind of GID" : to_string(static_cast<GidType>(theirs - 1))) +
            ", this node uses " + to_string(choice_.type) + " (" + choice_.reason +
            "); name a device and GID of one kind on both, see 'pyrdma devices'");
  }
  ibv_ah_attr route{};
  route.port_num = port();
  route.dlid = peer.lid;
  const bool other_subnet = std::memcmp(peer.gid, gid_.raw, sizeof gid_.global.subnet_prefix) != 0;
  route.is_global = port_.link_layer == IBV_LINK_LAYER_ETHERNET || peer.lid == 0 || other_subnet ||
                            (port_.flags & IBV_QPF_GRH_REQUIRED) != 0
                        ? 1
                        : 0;
  std::memcpy(route.grh.dgid.raw, peer.gid, sizeof peer.gid);
  route.grh.sgid_index = static_cast<std::uint8_t>(choice_.gid_index);
  route.grh.hop_limit = 64;
  set_path(route, path);
  return route;
}

// ---- events and end of life ----

void VerbsDevice::add(Silenceable& queue_pair) {
  const std::lock_guard lock(mutex_);
  queue_pairs_.insert(&queue_pair);
}

void VerbsDevice::remove(Silenceable& queue_pair) {
  const std::lock_guard lock(mutex_);
  queue_pairs_.erase(&queue_pair);
}

void VerbsDevice::kill() {
  const std::lock_guard lock(mutex_);
  for (Silenceable* queue_pair : queue_pairs_) queue_pair->silence();
}

void VerbsDevice::note(const Notice& notice) {
  const std::lock_guard lock(mutex_);
  if (std::find(notices_.begin(), notices_.end(), notice) == notices_.end())
    notices_.push_back(notice);
}

std::vector<Notice> VerbsDevice::notices() {
  const std::lock_guard lock(mutex_);
  return notices_;
}

void VerbsDevice::take_events() {
  const Library& ib = Library::get();
  const std::lock_guard lock(events_mutex_);
  pollfd query{context_->async_fd, POLLIN, 0};
  ibv_async_event event{};
  while (::poll(&query, 1, 0) > 0 && ib.get_async_event(context_, &event) == 0) {
    // The queue exists until its event is acknowledged, because its destruction waits for that.
    if (event.event_type == IBV_EVENT_CQ_ERR && event.element.cq->cq_context != nullptr)
      static_cast<VerbsCompletionQueue*>(event.element.cq->cq_context)->mark_overrun();
    if (event.event_type == IBV_EVENT_PORT_ACTIVE && event.element.port_num == choice_.port)
      port_down_since_.store(0, std::memory_order_release);
    if (event.event_type == IBV_EVENT_PORT_ERR && event.element.port_num == choice_.port) {
      port_down_since_.store(node_.env().now(), std::memory_order_release);
      note({"port " + std::to_string(choice_.port) + " of " + choice_.device +
                " went down; check its cable, its switch and 'pyrdma devices'",
            true});
    }
    if (event.event_type == IBV_EVENT_DEVICE_FATAL) {
      note({"device " + choice_.device + " failed; read 'dmesg' and open the device again", true});
    }
    node_.env().trace().event(node_.env().now(), "verbs_event",
                              ib.event_type_str(event.event_type));
    ib.ack_async_event(&event);
  }
}

}  // namespace pyrdma::fabric::verbs
