#include "fabric/sim/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "fabric/sim/queue_pair.h"

namespace pyrdma::fabric::sim {
namespace {

// Zeroed pages. A page becomes resident when it is first touched.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 1)) {
    void* address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
      throw Error(ErrorCode::kExhausted, "the machine has no memory for a region of " +
                                             std::to_string(bytes) +
                                             " bytes: use smaller regions or fewer nodes");
    data_ = static_cast<std::byte*>(address);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

class SimMemoryRegion final : public MemoryRegion {
 public:
  SimMemoryRegion(Nic& nic, std::unique_ptr<Pages> pages, void* data, std::size_t bytes,
                  std::uint32_t access, std::uint32_t domain, bool on_device,
                  std::uint64_t* device_memory_used)
      : nic_(nic), pages_(std::move(pages)), device_memory_used_(device_memory_used) {
    auto* bytes_at = static_cast<std::byte*>(data);
    addr_ = reinterpret_cast<std::uint64_t>(data);
    size_ = bytes;
    data_ = on_device ? nullptr : bytes_at;
    node_ = nic.node();
    region_ = {bytes_at, addr_, bytes, 0, access, domain, nic.fabric().next_serial++, on_device};
    region_.key = nic_.regions.insert(&region_);
    lkey_ = rkey_ = region_.key;
    nic_.contexts.change_footprint(state_bytes());
    nic_.fabric().device_regions += on_device;
    if (device_memory_used_ != nullptr) *device_memory_used_ += bytes;
  }
  ~SimMemoryRegion() override {
    for (PlacementQueue* queue : nic_.fabric().placing) queue->settle(region_);
    nic_.regions.erase(region_.key, &region_);
    nic_.contexts.change_footprint(-state_bytes());
    nic_.fabric().device_regions -= region_.on_device;
    if (device_memory_used_ != nullptr) *device_memory_used_ -= size_;
    nic_.control.deregister_memory(size_);
  }

 private:
  double state_bytes() const {
    const SimProfile& profile = nic_.fabric().profile;
    const double pages = std::max(1.0, static_cast<double>(size_) / profile.nic_page_bytes);
    return profile.nic_mr_state_bytes + pages * profile.nic_page_state_bytes;
  }
  Nic& nic_;
  std::unique_ptr<Pages> pages_;
  Region region_{};
  std::uint64_t* device_memory_used_;
};

std::string name_of(const Nic& nic) {
  const std::string name = "sim" + std::to_string(nic.node());
  return nic.device() == 0 ? name : name + '.' + std::to_string(nic.device());
}

}  // namespace

// ---- set-up exchange ----

void SimRendezvous::publish(std::string_view key, std::span<const std::byte> value) {
  if (key.empty() || key.size() > kMaxKey || value.size() > kMaxValue)
    throw Error(ErrorCode::kInvalidArgument,
                "rendezvous: the key has " + std::to_string(key.size()) + " bytes and the value " +
                    std::to_string(value.size()) + " bytes; give a key of 1 to " +
                    std::to_string(kMaxKey) + " and a value of at most " +
                    std::to_string(kMaxValue) + " bytes");
  nic_.fabric().scheduler.sync();  // no thread finds the value before this thread's time
  const auto [at, inserted] =
      table_.values.try_emplace(std::string(key), value.begin(), value.end());
  if (!inserted && !std::equal(value.begin(), value.end(), at->second.begin(), at->second.end()))
    throw Error(ErrorCode::kInvalidArgument, "rendezvous: key '" + std::string(key) +
                                                 "' already has another value; choose another key");
  nic_.fabric().scheduler.notify(table_.published);
}

bool SimRendezvous::is_published_by(std::string_view key, Time deadline) {
  return nic_.env().poll_until([&] { return table_.values.find(key) != table_.values.end(); },
                               deadline, &table_.published);
}

std::optional<std::vector<std::byte>> SimRendezvous::find(std::string_view key) {
  if (!is_published_by(key, nic_.env().now())) return std::nullopt;
  nic_.control.exchange_addresses();
  return table_.values.find(key)->second;
}

std::vector<std::byte> SimRendezvous::await(std::string_view key, Time deadline) {
  if (!is_published_by(key, deadline))
    throw Error(ErrorCode::kTimeout,
                "rendezvous: no node published key '" + std::string(key) +
                    "' before the deadline; check that the peer runs, and runs the same program");
  nic_.control.exchange_addresses();
  return table_.values.find(key)->second;
}

// ---- device ----

SimDevice::SimDevice(Nic& nic, RendezvousTable& table)
    : nic_(nic), rendezvous_(nic, table), name_(name_of(nic)) {
  const SimProfile& profile = nic.fabric().profile;
  capabilities_.uc = capabilities_.ud = capabilities_.atomics = capabilities_.srq = true;
  capabilities_.dc = profile.nic_has_dc != 0;
  capabilities_.device_memory = profile.nic_device_memory_bytes > 0;
  capabilities_.register_own_memory = true;
  capabilities_.max_queue_entries = capabilities_.max_completions = 1 << 16;
  capabilities_.max_sges = 16;
  capabilities_.max_inline = static_cast<std::uint32_t>(profile.nic_max_inline_bytes);
  capabilities_.max_outstanding_reads =
      static_cast<std::uint32_t>(profile.nic_max_outstanding_reads);
  capabilities_.max_datagram = static_cast<std::uint32_t>(profile.link_mtu_bytes);
  capabilities_.max_receive_strides = static_cast<std::uint32_t>(profile.nic_receive_strides);
  capabilities_.max_message = kMaxMessage;
  capabilities_.link_gbps = profile.link_rate_gbps;
  capabilities_.device_memory_bytes = static_cast<std::uint64_t>(profile.nic_device_memory_bytes);
}

void SimDevice::check_entries(const char* what, std::uint64_t value, std::uint64_t most) const {
  if (value == 0 || value > most)
    throw Error(ErrorCode::kInvalidArgument, std::string(what) + " is " + std::to_string(value) +
                                                 "; this device allows 1 to " +
                                                 std::to_string(most));
}

void SimDevice::check_own(const char* what, const Nic& maker) const {
  if (&maker == &nic_) return;
  throw Error(ErrorCode::kInvalidArgument, std::string("the ") + what + " belongs to device " +
                                               name_of(maker) + "; make one on device " + name_);
}

std::uint32_t SimDevice::domain_of(const ProtectionDomain& pd) const {
  const auto& domain = static_cast<const SimProtectionDomain&>(pd);
  check_own("protection domain", *domain.nic);
  return domain.id;
}

void SimDevice::open() { nic_.control.open(); }

std::unique_ptr<ProtectionDomain> SimDevice::create_protection_domain() {
  nic_.control.create_domain();
  return std::make_unique<SimProtectionDomain>(nic_, nic_.fabric().next_domain++);
}

void SimDevice::check_region(std::size_t bytes, std::uint32_t access) const {
  if (bytes == 0)
    throw Error(ErrorCode::kInvalidArgument, "a region has 0 bytes; it must have at least 1 byte");
  check_region_access(access);
}

std::unique_ptr<MemoryRegion> SimDevice::allocate(ProtectionDomain& pd, std::size_t bytes,
                                                  std::uint32_t access) {
  check_region(bytes, access);
  auto pages = std::make_unique<Pages>(bytes);
  nic_.control.register_memory(bytes);
  void* data = pages->data();
  return std::make_unique<SimMemoryRegion>(nic_, std::move(pages), data, bytes, access,
                                           domain_of(pd), false, nullptr);
}

std::unique_ptr<MemoryRegion> SimDevice::register_memory(ProtectionDomain& pd, void* data,
                                                         std::size_t bytes, std::uint32_t access) {
  if (data == nullptr || bytes == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "a region has no memory; give an address and at least 1 byte");
  check_region(bytes, access);
  nic_.control.register_memory(bytes);
  return std::make_unique<SimMemoryRegion>(nic_, nullptr, data, bytes, access, domain_of(pd), false,
                                           nullptr);
}

std::unique_ptr<MemoryRegion> SimDevice::allocate_device_memory(ProtectionDomain& pd,
                                                                std::size_t bytes,
                                                                std::uint32_t access) {
  const std::uint64_t free = capabilities_.device_memory_bytes - device_memory_used_;
  if (!capabilities_.device_memory || bytes == 0 || bytes > free)
    throw Error(ErrorCode::kExhausted, "device memory of " + std::to_string(bytes) +
                                           " bytes: this NIC has " + std::to_string(free) +
                                           " bytes free of " +
                                           std::to_string(capabilities_.device_memory_bytes));
  check_region(bytes, access);
  auto pages = std::make_unique<Pages>(bytes);
  nic_.control.register_memory(bytes);
  void* data = pages->data();
  return std::make_unique<SimMemoryRegion>(nic_, std::move(pages), data, bytes, access,
                                           domain_of(pd), true, &device_memory_used_);
}

std::unique_ptr<CompletionQueue> SimDevice::create_completion_queue(std::uint32_t entries) {
  check_entries("entries", entries, capabilities_.max_completions);
  nic_.control.create_queue();
  return std::make_unique<SimCompletionQueue>(nic_, entries);
}

std::unique_ptr<SharedReceiveQueue> SimDevice::create_shared_receive_queue(ProtectionDomain& pd,
                                                                           std::uint32_t entries,
                                                                           std::uint32_t max_sges) {
  check_entries("entries", entries, capabilities_.max_queue_entries);
  check_entries("max_sges", max_sges, capabilities_.max_sges);
  nic_.control.create_queue();
  return std::make_unique<SimSharedReceiveQueue>(nic_, domain_of(pd), entries, max_sges);
}

std::unique_ptr<QueuePair> SimDevice::create_queue_pair(ProtectionDomain& pd,
                                                        CompletionQueue& send_queue,
                                                        CompletionQueue& receive_queue,
                                                        const QpOptions& options,
                                                        SharedReceiveQueue* shared_receives) {
  check_entries("send_entries", options.send_entries, capabilities_.max_queue_entries);
  check_entries("max_sges", options.max_sges, capabilities_.max_sges);
  if (shared_receives == nullptr)
    check_entries("receive_entries", options.receive_entries, capabilities_.max_queue_entries);
  if (options.max_inline > capabilities_.max_inline)
    throw Error(ErrorCode::kInvalidArgument, "max_inline is " + std::to_string(options.max_inline) +
                                                 "; this device allows up to " +
                                                 std::to_string(capabilities_.max_inline));
  check_entries("max_outstanding_reads", options.max_outstanding_reads,
                capabilities_.max_outstanding_reads);
  for (const auto& [name, value] :
       {std::pair("retry_count", options.retry_count), {"rnr_retry", options.rnr_retry}})
    if (value > 7)
      throw Error(ErrorCode::kInvalidArgument,
                  std::string(name) + " is " + std::to_string(value) + "; give 0 to 7");
  check_queue_pair_access(options.access);
  check_receive_strides(options, capabilities_, shared_receives != nullptr);
  check_no_path("sim", options);
  if (options.transport == Transport::kDc && !capabilities_.dc)
    throw Error(ErrorCode::kUnavailable,
                "this NIC has no dynamically connected transport: use RC, or a profile with "
                "nic.has_dc = 1");
  if (options.dc_target && (options.transport != Transport::kDc || shared_receives == nullptr))
    throw Error(ErrorCode::kInvalidArgument,
                "dc_target is True; give transport dc and a shared receive queue with it");
  auto& sends = static_cast<SimCompletionQueue&>(send_queue);
  auto& receives = static_cast<SimCompletionQueue&>(receive_queue);
  auto* shared = static_cast<SimSharedReceiveQueue*>(shared_receives);
  const std::uint32_t domain = domain_of(pd);
  check_own("send completion queue", sends.nic());
  check_own("receive completion queue", receives.nic());
  if (shared != nullptr) check_own("shared receive queue", shared->nic());
  nic_.control.create_queue_pair();
  auto core = std::make_unique<QueuePairCore>(nic_, options, domain, sends, receives, shared);
  core->number = nic_.queue_pairs.insert(core.get());
  core->psn = nic_.draw_packet_number();
  core->serial = nic_.fabric().next_serial++;
  nic_.contexts.change_footprint(nic_.fabric().profile.nic_qp_state_bytes);
  return std::make_unique<SimQueuePair>(nic_, std::move(core));
}

std::unique_ptr<AddressHandle> SimDevice::create_address_handle(ProtectionDomain& pd,
                                                                const QpAddress& peer,
                                                                const PathOptions& path) {
  check_no_path("sim", path);
  return std::make_unique<SimAddressHandle>(&nic_.fabric().nic_of(peer), domain_of(pd));
}

}  // namespace pyrdma::fabric::sim
