#include "env/thread/thread_storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "base/error.h"

namespace pyrdma {
namespace {

constexpr std::string_view kPrefix = "pyrdma-storage-";

[[noreturn]] void fail(const std::string& what, int error) {
  const bool full =
      error == ENOSPC || error == EDQUOT || error == EFBIG || error == EMFILE || error == ENFILE;
  std::string text = what + ": " + std::system_category().message(error);
  if (error == ENOSPC || error == EDQUOT)
    text += "; free space there, or set TMPDIR to another disk";
  throw Error(full ? ErrorCode::kExhausted : ErrorCode::kUnavailable, text, false);
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
  DIR* dir = ::opendir(parent.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    int pid = 0;
    unsigned long long start = 0;
    if (name.compare(0, kPrefix.size(), kPrefix) != 0 ||
        std::sscanf(name.c_str() + kPrefix.size(), "%d-%llu-", &pid, &start) != 2) {
      continue;
    }
    struct stat info {};
    if (::fstatat(::dirfd(dir), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || process_start(pid) == start) {
      continue;
    }
    std::error_code ignored;  // another process may remove it first
    std::filesystem::remove_all(parent + "/" + name, ignored);
  }
  ::closedir(dir);
}

std::string storage_parent() {
  const char* chosen = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): no code sets it
  return chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
}

ThreadStorage::ThreadStorage() {
  const std::string parent = storage_parent();
  remove_stale_storage(parent);
  const int pid = ::getpid();
  folder_ = parent + "/" + std::string(kPrefix) + std::to_string(pid) + "-" +
            std::to_string(process_start(pid)) + "-XXXXXX";
  if (::mkdtemp(folder_.data()) == nullptr)
    fail("cannot create a storage folder in " + parent, errno);
  folder_fd_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder_fd_ < 0) fail("cannot open " + folder_, errno);
}

ThreadStorage::~ThreadStorage() {
  if (folder_fd_ >= 0) ::close(folder_fd_);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
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
