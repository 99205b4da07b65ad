#include "fabric/verbs/ib/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "fabric/verbs/ib/translate.h"

namespace pyrdma::fabric::verbs {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kIpcLock = 14;  // CAP_IPC_LOCK

/// The locked memory of this process, as the kernel counts it.
struct Locked {
  std::uint64_t pinned = 0;  // bytes that devices keep in memory
  bool without_limit = false;
};

Locked locked_now() {
  Locked now;
  std::ifstream status("/proc/self/status");
  std::string name;
  while (status >> name) {
    if (name == "CapEff:") {
      std::uint64_t capabilities = 0;
      status >> std::hex >> capabilities >> std::dec;
      now.without_limit = (capabilities >> kIpcLock & 1) != 0;
    } else if (name == "VmPin:") {
      status >> now.pinned;
      now.pinned *= 1024;
    }
  }
  return now;
}

/// Returns RLIM_INFINITY when there is no limit.
rlim_t limit_of_locked() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ? RLIM_INFINITY : limit.rlim_cur;
}

constexpr const char* kRemedy =
    "raise the limit: '* - memlock unlimited' (and the same for root) in "
    "/etc/security/limits.conf and a new login; LimitMEMLOCK=infinity for a service of systemd; or "
    "ulimit -l unlimited";

// The check precedes the kernel's, whose refusal says only that memory is short.
void check_lockable(const void* data, std::size_t bytes) {
  const rlim_t limit = limit_of_locked();
  // The usual case of measurements, which thus read no files here.
  if (limit == RLIM_INFINITY) return;
  const Locked now = locked_now();
  const std::uint64_t before = reinterpret_cast<std::uintptr_t>(data) % kPage;
  const std::uint64_t all = now.pinned + (before + bytes + kPage - 1) / kPage * kPage;
  if (now.without_limit || all <= limit) return;
  throw Error(ErrorCode::kExhausted, "verbs: registering " + std::to_string(bytes) +
                                         " bytes would lock " + std::to_string(all) +
                                         " bytes, but the limit is " + std::to_string(limit) +
                                         "; " + kRemedy);
}

}  // namespace

std::string locked_memory_remedy() {
  const rlim_t limit = limit_of_locked();
  if (limit == RLIM_INFINITY || locked_now().without_limit) return "";
  return "the limit of locked memory is " + std::to_string(limit) +
         " bytes, and the queues of the device use part of it; " + kRemedy;
}

VerbsRegion::VerbsRegion(VerbsDevice& device, VerbsDomain& domain, void* data, std::size_t bytes,
                         std::uint32_t access)
    : device_(device), domain_(domain.share()) {
  check_lockable(data, bytes);
  size_ = bytes;
  data_ = static_cast<std::byte*>(data);
  if (data == nullptr && (access & kOwnFile) != 0)
    map_file(bytes);
  else if (data == nullptr)
    map(bytes);
  const Library& ib = Library::get();
  const bool relaxed = (access & kRelaxedOrdering) != 0 && ib.reg_mr_iova2 != nullptr;
  const int rights = device_.rights_of(access);
  mr_ = relaxed ? ib.reg_mr_iova2(domain.pd(), data_, bytes, reinterpret_cast<std::uint64_t>(data_),
                                  static_cast<unsigned>(rights) | IBV_ACCESS_RELAXED_ORDERING)
                : (ib.reg_mr)(domain.pd(), data_, bytes, rights);
  if (mr_ == nullptr) {
    const int error = errno;
    unmap();
    throw_failed("register " + std::to_string(bytes) + " bytes", error);
  }
  addr_ = reinterpret_cast<std::uint64_t>(data_);
  lkey_ = mr_->lkey;
  rkey_ = mr_->rkey;
  node_ = device_.node().self();
}

VerbsRegion::~VerbsRegion() {
  Library::get().dereg_mr(mr_);
  unmap();
}

// Takes reserved huge pages when any are free, because the NIC then caches fewer translations.
// Otherwise it asks the kernel to make huge pages of ordinary memory.
void VerbsRegion::map(std::size_t bytes) {
  void* data = MAP_FAILED;
  if (bytes >= kHugePage) {
    mapped_ = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    data = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  }
  if (data == MAP_FAILED) {
    mapped_ = (bytes + kPage - 1) / kPage * kPage;
    data = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data != MAP_FAILED && bytes >= kHugePage) {
      ::madvise(data, mapped_, MADV_HUGEPAGE);
      device_.note(
          {"regions of 2 MiB and more lie in ordinary pages, because too few huge pages are free; "
           "the NIC then caches more translations; sysctl -w vm.nr_hugepages=COUNT reserves pages "
           "of 2 MiB"});
    }
  }
  if (data == MAP_FAILED) {
    mapped_ = 0;
    throw Error(ErrorCode::kExhausted, "verbs: the machine has no memory for a region of " +
                                           std::to_string(bytes) + " bytes");
  }
  data_ = static_cast<std::byte*>(data);
}

void VerbsRegion::map_file(std::size_t bytes) {
  own_file_ = shm::Mapping::create((bytes + kPage - 1) / kPage * kPage);
  data_ = own_file_->data();
  file_ = own_file_->descriptor();
}

void VerbsRegion::unmap() {
  if (mapped_ != 0) ::munmap(data_, mapped_);
}

DeviceRegion::DeviceRegion(VerbsDevice& device, VerbsDomain& domain, std::size_t bytes,
                           std::uint32_t access)
    : domain_(domain.share()) {
  ibv_alloc_dm_attr attributes{};
  attributes.length = (bytes + 7) / 8 * 8;  // ibv_memcpy_to_dm copies whole words
  memory_ = ibv_alloc_dm(device.context(), &attributes);
  if (memory_ == nullptr)
    throw_failed("allocate " + std::to_string(bytes) + " bytes on the device", errno);
  const unsigned rights = static_cast<unsigned>(device.rights_of(access)) | IBV_ACCESS_ZERO_BASED;
  mr_ = ibv_reg_dm_mr(domain.pd(), memory_, 0, bytes, rights);
  if (mr_ == nullptr) {
    const int error = errno;
    ibv_free_dm(memory_);
    throw_failed("register " + std::to_string(bytes) + " bytes on the device", error);
  }
  size_ = bytes;
  lkey_ = mr_->lkey;
  rkey_ = mr_->rkey;
  node_ = device.node().self();
  // The memory may hold another user's bytes.
  const std::vector<std::byte> zeros(attributes.length);
  ibv_memcpy_to_dm(memory_, 0, zeros.data(), zeros.size());
}

DeviceRegion::~DeviceRegion() {
  Library::get().dereg_mr(mr_);
  ibv_free_dm(memory_);
}

}  // namespace pyrdma::fabric::verbs
