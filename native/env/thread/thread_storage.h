// ThreadStorage keeps the files of one node in a private folder and removes the folder with the
// node. A node killed by -9 leaves its folder behind; the end of its session, or the next
// ThreadStorage of the same user on the same host, removes it. A locked file in the folder shows
// that the owner lives, also where its process id means nothing: in another container.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "env/storage.h"

namespace pyrdma {

class ThreadStorage final : public Storage {
 public:
  /// Makes a folder of mode 0700 under $TMPDIR or /tmp. Throws Error(kUnavailable) on failure.
  ThreadStorage();
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
  /// Returns false when another process has removed the folder meanwhile.
  bool make_folder(const std::string& parent);
  void close();

  std::string folder_;
  int folder_fd_ = -1, lock_fd_ = -1;
};

/// Removes the storage folders in `parent` that this user made on this host and whose owner has
/// ended. Removes none where the file system cannot lock files.
void remove_stale_storage(const std::string& parent);
/// Returns $TMPDIR, or /tmp.
std::string storage_parent();

/// Returns the start time of process `pid` in the kernel's ticks, or 0 without such a process.
/// Start time and pid together name a process for good.
std::uint64_t process_start(int pid);

}  // namespace pyrdma
