#include "fabric/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/units.h"

namespace pyrdma::fabric::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void fail(const std::string& what, int error) {
  const bool full = error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC;
  throw Error(full ? ErrorCode::kExhausted : ErrorCode::kUnavailable,
              "shm: " + what + ": " + std::system_category().message(error));
}

/// Each region of more than a few MiB takes a descriptor, so a process would soon reach the soft
/// limit of 1024.
int create_file() {
  int fd = ::memfd_create("pyrdma", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 && errno == EMFILE) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
      limit.rlim_cur = limit.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &limit);
      fd = ::memfd_create("pyrdma", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
  }
  return fd;
}

/// Closes the descriptor on every exit.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

}  // namespace

std::shared_ptr<Mapping> Mapping::create(std::uint64_t bytes) {
  Descriptor file(create_file());
  if (file.get() < 0) fail("cannot create a memory file", errno);
  struct stat info {};
  if (::fchmod(file.get(), 0600) != 0 || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0 || ::fstat(file.get(), &info) != 0) {
    fail("cannot resize a memory file to " + std::to_string(bytes) + " bytes", errno);
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) fail("cannot map " + std::to_string(bytes) + " bytes", errno);
  std::shared_ptr<Mapping> mapping(new Mapping);
  mapping->data_ = static_cast<std::byte*>(data);
  mapping->size_ = bytes;
  mapping->inode_ = info.st_ino;
  mapping->descriptor_ = file.release();
  return mapping;
}

std::string file_of(int pid, int descriptor) {
  return "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor);
}

std::shared_ptr<Mapping> Mapping::open(int pid, int descriptor, std::uint64_t inode,
                                       std::uint64_t bytes) {
  if (pid <= 0 || descriptor < 0 || bytes == 0 || bytes > (1ULL << 46)) return nullptr;
  const Descriptor file(::open(file_of(pid, descriptor).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  return map(file.get(), bytes, &inode);
}

std::shared_ptr<Mapping> Mapping::adopt(int descriptor, std::uint64_t bytes) {
  const Descriptor file(descriptor);
  return map(file.get(), bytes, nullptr);
}

std::shared_ptr<Mapping> Mapping::map(int descriptor, std::uint64_t bytes,
                                      const std::uint64_t* inode) {
  struct stat info {};
  if (descriptor < 0 || ::fstat(descriptor, &info) != 0) return nullptr;
  const bool ours = S_ISREG(info.st_mode) && (info.st_mode & 07777) == 0600 &&
                    info.st_uid == ::geteuid() && (inode == nullptr || info.st_ino == *inode) &&
                    static_cast<std::uint64_t>(info.st_size) == bytes &&
                    (::fcntl(descriptor, F_GET_SEALS) & kSeals) == kSeals;
  if (!ours) return nullptr;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return nullptr;
  std::shared_ptr<Mapping> mapping(new Mapping);
  mapping->data_ = static_cast<std::byte*>(data);
  mapping->size_ = bytes;
  mapping->inode_ = info.st_ino;
  return mapping;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
  close_file();
}

void Mapping::close_file() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void Mapping::discard(std::uint64_t offset, std::uint64_t bytes) {
  ::madvise(data_ + offset, bytes, MADV_REMOVE);
}

void MappingTable::add(const std::shared_ptr<Mapping>& mapping) {
  const std::lock_guard lock(mutex_);
  insert(mapping);
}

void MappingTable::insert(const std::shared_ptr<Mapping>& mapping) {
  if (mappings_.size() >= look_at_) {
    std::erase_if(mappings_, [](const auto& known) { return known.second.expired(); });
    look_at_ = 2 * mappings_.size() + 64;
  }
  mappings_[mapping->inode()] = mapping;
}

std::shared_ptr<Mapping> MappingTable::open(int pid, int descriptor, std::uint64_t inode,
                                            std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (auto known = mappings_.find(inode); known != mappings_.end()) {
    if (auto mapping = known->second.lock()) {
      return mapping->size() == bytes ? mapping : nullptr;
    }
    mappings_.erase(known);
  }
  auto mapping = Mapping::open(pid, descriptor, inode, bytes);
  if (mapping) insert(mapping);
  return mapping;
}

void fill_random(void* data, std::size_t bytes) {
  auto* at = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t n = ::getrandom(at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("the system gives no random numbers", errno);
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

}  // namespace pyrdma::fabric::shm
