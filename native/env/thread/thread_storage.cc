#include "env/thread/thread_storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"

namespace pyrdma {
namespace {

constexpr std::string_view kPrefix = "pyrdma-storage-", kRunPrefix = "pyrdma-run-";
constexpr std::string_view kRandom = "XXXXXX";  // mkdtemp replaces it
// The owner of a folder holds the lock of this file as long as it lives. Storage::open refuses the
// name.
constexpr const char* kLock = ".lock";

[[noreturn]] void fail(const std::string& what, int error) {
  const bool full =
      error == ENOSPC || error == EDQUOT || error == EFBIG || error == EMFILE || error == ENFILE;
  std::string text = what + ": " + std::system_category().message(error);
  if (error == ENOSPC || error == EDQUOT)
    text += "; free space there, or set TMPDIR to another disk";
  throw Error(full ? ErrorCode::kExhausted : ErrorCode::kUnavailable, text, false);
}

struct Descriptor {
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int number;
};

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  std::string host = name;
  std::replace(host.begin(), host.end(), '/', '-');
  return host;
}

/// Returns the name of a folder without its last six letters. People read the process id in it.
std::string folder_name(const std::string& pid) {
  return std::string(kPrefix) + pid + "-" + host_name() + "-";
}

/// Some network file systems lock files for one host only, so the names of other hosts are left
/// alone.
bool is_of_this_host(const std::string& name) {
  if (name.size() < kPrefix.size() + kRandom.size() || !name.starts_with(kPrefix)) return false;
  const std::size_t pid_end = name.find('-', kPrefix.size());
  return pid_end != std::string::npos &&
         name.substr(0, name.size() - kRandom.size()) ==
             folder_name(name.substr(kPrefix.size(), pid_end - kPrefix.size()));
}

enum class Locked : std::uint8_t {
  kYes,
  kNo,           // another process holds the lock
  kUnsupported,  // by the file system
};

Locked lock_file(int descriptor) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno == EWOULDBLOCK ? Locked::kNo : Locked::kUnsupported;
  }
  return Locked::kYes;
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  // The stream closes its own descriptor.
  DIR* stream = ::fdopendir(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (stream == nullptr) return names;
  while (const dirent* entry = ::readdir(stream)) names.emplace_back(entry->d_name);
  ::closedir(stream);
  return names;
}

std::string hex(std::uint64_t value) {
  char text[17] = {};
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string run_file(std::uint64_t run) {
  return std::string(kRunPrefix) + hex(run) + "-" + host_name();
}

/// What the lock file of a folder says.
std::string text_of(StorageOwner owner) { return hex(owner.run) + std::to_string(owner.node); }

std::optional<StorageOwner> owner_in(int lock) {
  char text[64] = {};
  if (::pread(lock, text, sizeof text - 1, 0) <= 16) return std::nullopt;
  StorageOwner owner;
  char* end = nullptr;
  owner.node = static_cast<std::uint32_t>(std::strtoul(text + 16, &end, 10));
  text[16] = '\0';
  owner.run = std::strtoull(text, nullptr, 16);
  return owner;
}

/// Opens a file of this user, and creates it if asked. Returns -1 on failure.
int open_own(int folder, const std::string& name, int create) {
  const int opened =
      ::openat(folder, name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | create, 0600);
  struct stat info {};
  if (opened < 0 || (::fstat(opened, &info) == 0 && info.st_uid == ::geteuid())) return opened;
  ::close(opened);
  errno = EACCES;
  return -1;
}

/// Another process holds the lock of the run.
bool run_lives(int parent, std::uint64_t run) {
  if (run == 0) return false;
  const Descriptor file(open_own(parent, run_file(run), 0));
  return file.number >= 0 && lock_file(file.number) != Locked::kYes;
}

/// Removes the lock file last: until then another process can see that the folder has an owner, or
/// finish the work of one that was killed.
void remove_files(int folder) {
  for (const std::string& name : names_in(folder)) {
    if (name != kLock) ::unlinkat(folder, name.c_str(), 0);
  }
  ::unlinkat(folder, kLock, 0);
}

class RealFile final : public File {
 public:
  RealFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~RealFile() override { ::close(fd_); }
  RealFile(const RealFile&) = delete;
  RealFile& operator=(const RealFile&) = delete;

  void write(std::uint64_t offset, std::span<const std::byte> data) override {
    while (!data.empty()) {
      const ssize_t n = ::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("cannot write to " + path_, n == 0 ? ENOSPC : errno);
      data = data.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
  }
  std::size_t read(std::uint64_t offset, std::span<std::byte> data) override {
    std::size_t got = 0;
    while (got < data.size()) {
      const ssize_t n =
          ::pread(fd_, data.data() + got, data.size() - got, static_cast<off_t>(offset + got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot read " + path_, errno);
      if (n == 0) break;
      got += static_cast<std::size_t>(n);
    }
    return got;
  }
  void sync() override {
    if (::fdatasync(fd_) != 0) fail("cannot sync " + path_, errno);
  }
  std::uint64_t size() override {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail("cannot stat " + path_, errno);
    return static_cast<std::uint64_t>(info.st_size);
  }

 private:
  int fd_;
  std::string path_;
};

}  // namespace

std::uint64_t process_start(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return 0;
  // The process name, in parentheses, may hold any character. The start time is the 20th field
  // after it.
  const std::size_t close = line.rfind(')');
  if (close == std::string::npos) return 0;
  const char* at = line.c_str() + close + 1;
  for (int field = 1; field < 20 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

void remove_stale_storage(const std::string& parent) {
  const Descriptor folders(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::vector<std::string> names = names_in(folders.number);
  for (const std::string& name : names) {
    if (!is_of_this_host(name)) continue;
    const Descriptor folder(
        ::openat(folders.number, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info {};
    if (folder.number < 0 || ::fstat(folder.number, &info) != 0 || info.st_uid != ::geteuid())
      continue;
    const Descriptor lock(
        ::openat(folder.number, kLock, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    const auto run_needs_it = [&] {
      const auto owner = owner_in(lock.number);
      return owner && run_lives(folders.number, owner->run);
    };
    // Without the first look, a restarted node would now and then find the lock of its folder
    // taken. The owner may write the file before the second one.
    if (lock.number >= 0 && !run_needs_it() && lock_file(lock.number) == Locked::kYes) {
      if (run_needs_it()) continue;
      remove_files(folder.number);
    } else if (lock.number >= 0 || errno != ENOENT) {
      continue;
    }
    // A folder without a lock file is that of a process which was killed before it made the file,
    // or is about to make it, and then makes another folder. The kernel removes empty folders only.
    ::unlinkat(folders.number, name.c_str(), AT_REMOVEDIR);
  }
  for (const std::string& name : names) {
    if (!name.starts_with(kRunPrefix) || !name.ends_with("-" + host_name())) continue;
    const Descriptor file(open_own(folders.number, name, 0));
    if (file.number >= 0 && lock_file(file.number) == Locked::kYes)
      ::unlinkat(folders.number, name.c_str(), 0);
  }
}

std::string storage_parent() {
  const char* chosen = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): no code sets it
  return chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
}

// Another process may remove the file between two steps.
RunLock::RunLock(std::uint64_t run) {
  if (run == 0) return;
  path_ = storage_parent() + "/" + run_file(run);
  while (true) {
    descriptor_ = open_own(AT_FDCWD, path_, O_CREAT);
    if (descriptor_ < 0) return;
    while (::flock(descriptor_, LOCK_SH) != 0) {
      if (errno != EINTR) return;
    }
    struct stat opened {};
    struct stat named {};
    if (::fstat(descriptor_, &opened) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
        opened.st_ino == named.st_ino)
      return;
    ::close(descriptor_);
  }
}

RunLock::~RunLock() {
  if (descriptor_ < 0) return;
  if (lock_file(descriptor_) == Locked::kYes) ::unlink(path_.c_str());  // nobody else holds it
  ::close(descriptor_);
}

ThreadStorage::ThreadStorage(StorageOwner owner) : owner_(owner), run_(owner.run) {
  const std::string parent = storage_parent();
  remove_stale_storage(parent);
  if (takes_over(parent)) return;
  while (!make_folder(parent)) {
  }
}

bool ThreadStorage::takes_over(const std::string& parent) {
  if (owner_.run == 0) return false;
  const Descriptor folders(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const std::string& name : names_in(folders.number)) {
    if (!is_of_this_host(name)) continue;
    folder_fd_ =
        ::openat(folders.number, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder_fd_ >= 0) lock_fd_ = open_own(folder_fd_, kLock, 0);
    if (lock_fd_ >= 0 && lock_file(lock_fd_) == Locked::kYes && owner_in(lock_fd_) == owner_ &&
        ::faccessat(folder_fd_, kLock, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
      folder_ = parent + "/" + name;
      return true;
    }
    close();
  }
  return false;
}

// Between two steps another process may take the new folder for a stale one, and remove it.
bool ThreadStorage::make_folder(const std::string& parent) {
  close();
  folder_ = parent + "/" + folder_name(std::to_string(::getpid())) + std::string(kRandom);
  if (::mkdtemp(folder_.data()) == nullptr)
    fail("cannot create a storage folder in " + parent, errno);
  folder_fd_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder_fd_ >= 0) {
    lock_fd_ =
        ::openat(folder_fd_, kLock, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  }
  if (lock_fd_ < 0) {
    if (errno == ENOENT) return false;
    const int error = errno;
    ::rmdir(folder_.c_str());
    close();
    fail("cannot open " + folder_, error);
  }
  const std::string text = text_of(owner_);
  return lock_file(lock_fd_) != Locked::kNo &&
         ::faccessat(folder_fd_, kLock, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::pwrite(lock_fd_, text.data(), text.size(), 0) >= 0;
}

void ThreadStorage::close() {
  for (int* descriptor : {&folder_fd_, &lock_fd_}) {
    if (*descriptor >= 0) ::close(std::exchange(*descriptor, -1));
  }
}

ThreadStorage::~ThreadStorage() {
  remove_files(folder_fd_);
  ::rmdir(folder_.c_str());
  close();
}

std::unique_ptr<File> ThreadStorage::open(std::string_view name) {
  const std::string file = checked_file_name(name);
  const int fd =
      ::openat(folder_fd_, file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) fail("cannot open " + folder_ + "/" + file, errno);
  return std::make_unique<RealFile>(fd, folder_ + "/" + file);
}

bool ThreadStorage::exists(std::string_view name) {
  return ::faccessat(folder_fd_, checked_file_name(name).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void ThreadStorage::remove(std::string_view name) {
  const std::string file = checked_file_name(name);
  if (::unlinkat(folder_fd_, file.c_str(), 0) != 0 && errno != ENOENT) {
    fail("cannot remove " + folder_ + "/" + file, errno);
  }
}

void ThreadStorage::rename(std::string_view from, std::string_view to) {
  const std::string file = checked_file_name(from), target = checked_file_name(to);
  if (::renameat(folder_fd_, file.c_str(), folder_fd_, target.c_str()) != 0)
    fail("cannot rename " + folder_ + "/" + file + " to " + target, errno);
}

void ThreadStorage::sync() {
  if (::fsync(folder_fd_) != 0) fail("cannot sync " + folder_, errno);
}

}  // namespace pyrdma
