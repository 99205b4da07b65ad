// ThreadStorage keeps the files of one node in a private folder and removes the folder with the
// node. A node killed by -9 leaves its folder behind: the node that takes its place in the same run
// finds it again. The end of the run, or the next ThreadStorage of the same user on the same host
// after it, removes it. A locked file in the folder shows that the owner lives, and another one
// that the run does, also where process ids mean nothing: in another container.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/checksum.h"
#include "env/storage.h"

namespace pyrdma {

/// The place of a node in a run. `run` is a number that no other run has, or 0: no run.
struct StorageOwner {
  std::uint64_t run = 0;
  std::uint32_t node = 0;
  bool operator==(const StorageOwner&) const = default;
};

/// Returns the number of the run whose nodes know `token`.
inline std::uint64_t storage_run(std::string_view token) {
  return checksum(std::as_bytes(std::span(token)));
}

/// While it exists, the folders that killed nodes of a run have left stay. Controllers hold it, and
/// so does each ThreadStorage of the run.
class RunLock {
 public:
  /// Without a run, or where the file system cannot lock files, it does nothing.
  explicit RunLock(std::uint64_t run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
  std::string path_;
};

class ThreadStorage final : public Storage {
 public:
  /// Takes the folder that a killed node has left at the same place of the same run, or makes a
  /// folder of mode 0700 under $TMPDIR or /tmp. Throws Error(kUnavailable) on failure.
  explicit ThreadStorage(StorageOwner owner = {});
  ~ThreadStorage() override;
  ThreadStorage(const ThreadStorage&) = delete;
  ThreadStorage& operator=(const ThreadStorage&) = delete;

  std::unique_ptr<File> open(std::string_view name) override;
  bool exists(std::string_view name) override;
  void remove(std::string_view name) override;
  void rename(std::string_view from, std::string_view to) override;
  void sync() override;
  const std::string& folder() const { return folder_; }

 private:
  bool takes_over(const std::string& parent);
  /// Returns false when another process has removed the folder meanwhile.
  bool make_folder(const std::string& parent);
  void close();

  StorageOwner owner_;
  RunLock run_;
  std::string folder_;
  int folder_fd_ = -1, lock_fd_ = -1;
};

/// Removes the storage folders in `parent` that this user made on this host and whose owner and
/// run have ended. Removes none where the file system cannot lock files.
void remove_stale_storage(const std::string& parent);
/// Returns $TMPDIR, or /tmp.
std::string storage_parent();

/// Returns the start time of process `pid` in the kernel's ticks, or 0 without such a process.
/// Start time and pid together name a process for good.
std::uint64_t process_start(int pid);

}  // namespace pyrdma
