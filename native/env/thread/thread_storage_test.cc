// The folders of nodes that were killed are removed, and those of all others stay.
#include "env/thread/thread_storage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace pyrdma {
namespace {

namespace fs = std::filesystem;

/// Sets TMPDIR to a folder of its own.
struct ThreadStorageJanitor : testing::Test {
  ThreadStorageJanitor() {
    parent = (fs::temp_directory_path() / "pyrdma-janitor-XXXXXX").string();
    if (::mkdtemp(parent.data()) == nullptr) std::abort();
    const char* set = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe)
    if (set != nullptr) before = set;
    ::setenv("TMPDIR", parent.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  ~ThreadStorageJanitor() override {
    if (before.empty())
      ::unsetenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe)
    else
      ::setenv("TMPDIR", before.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    fs::remove_all(parent);
  }
  /// Makes the folder of a node of this host, whose process id no process has.
  fs::path make_orphan() const {
    fs::path folder;
    {
      const ThreadStorage model;
      folder = model.folder();
    }
    const std::string pid = "-" + std::to_string(::getpid()) + "-";
    std::string name = folder.filename().string();
    name.replace(name.find(pid), pid.size(), "-999999999-");
    folder.replace_filename(name);
    fs::create_directory(folder);
    std::ofstream(folder / ".lock");
    std::ofstream(folder / "log") << "data";
    return folder;
  }
  std::string parent, before;
};

TEST_F(ThreadStorageJanitor, RemovesTheFolderOfADeadOwnerOnly) {
  const ThreadStorage own;
  const fs::path dead = make_orphan(), living = make_orphan();
  const int lock = ::open((living / ".lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  remove_stale_storage(parent);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(living / "log")) << "no process has its id here, but its lock is held";
  EXPECT_TRUE(fs::exists(own.folder()));
  ::close(lock);
  remove_stale_storage(parent);
  EXPECT_FALSE(fs::exists(living));
}

TEST_F(ThreadStorageJanitor, TheNextOwnerOfAPlaceTakesOverItsFolder) {
  constexpr StorageOwner kPlace{42, 3};
  const auto killed = [&](StorageOwner owner, const std::string& name) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto* storage = new ThreadStorage(owner);  // never destroyed, as in a killed process
      storage->open(name)->sync();
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
  };
  {
    const RunLock run(kPlace.run);
    killed(kPlace, "own");
    killed({kPlace.run, 4}, "of another node");
    { const ThreadStorage of_another_run({7, 3}); }
    {
      ThreadStorage storage(kPlace);
      EXPECT_TRUE(storage.exists("own"));
      EXPECT_FALSE(storage.exists("of another node"));
      ThreadStorage second(kPlace);
      EXPECT_FALSE(second.exists("own")) << "its owner lives";
    }
    EXPECT_FALSE(ThreadStorage(kPlace).exists("own")) << "its owner has left";
    EXPECT_TRUE(ThreadStorage({kPlace.run, 4}).exists("of another node"));
    killed(kPlace, "left behind");
  }
  EXPECT_FALSE(fs::is_empty(parent));
  remove_stale_storage(parent);
  EXPECT_TRUE(fs::is_empty(parent)) << "the run has ended";
}

TEST_F(ThreadStorageJanitor, AFolderIsTakenOverWhileOthersCleanUp) {
  constexpr StorageOwner kPlace{42, 3};
  const RunLock run(kPlace.run);
  std::atomic<bool> done{false};
  std::thread janitor([&] {
    while (!done) remove_stale_storage(parent);
  });
  auto storage = std::make_unique<ThreadStorage>(kPlace);
  storage->open("log")->sync();
  const fs::path folder = storage->folder();
  fs::copy(folder, folder.parent_path() / "kept");
  storage.reset();
  for (int round = 0; round < 300; ++round) {
    fs::rename(folder.parent_path() / "kept", folder);  // as a killed node leaves it
    const ThreadStorage restarted(kPlace);
    EXPECT_TRUE(restarted.folder() == folder) << "in round " << round;
    fs::copy(folder, folder.parent_path() / "kept");
  }
  done = true;
  janitor.join();
}

TEST_F(ThreadStorageJanitor, LeavesWhatIsNotTheFolderOfANodeOfThisHost) {
  const fs::path model = make_orphan();
  const auto move = [&model](const std::string& name) {
    fs::path to = model;
    to.replace_filename(name);
    fs::copy(model, to);
    return to;
  };
  const std::string name = model.filename().string();
  const std::string host = name.substr(sizeof "pyrdma-storage-999999999" - 1);
  const std::vector<fs::path> kept = {
      move("pyrdma-storage-1-other" + host), move("pyrdma-storage-1" + host + "x"),
      move("pyrdma-storage-"), move("pyrdma-storage"), move("other-1" + host)};
  fs::path target = fs::path(parent) / "elsewhere", link = model;
  fs::copy(model, target);
  fs::create_directory_symlink(target, link.replace_filename("pyrdma-storage-2" + host));
  const fs::path linked_lock = move("pyrdma-storage-3" + host);
  fs::remove(linked_lock / ".lock");
  fs::create_symlink(target / ".lock", linked_lock / ".lock");
  const fs::path without_lock = move("pyrdma-storage-4" + host);
  fs::remove(without_lock / ".lock");
  const fs::path empty = fs::path(parent) / ("pyrdma-storage-5" + host);
  fs::create_directory(empty);

  remove_stale_storage(parent);
  EXPECT_FALSE(fs::exists(model));
  EXPECT_FALSE(fs::exists(empty)) << "its process was killed before it made the lock";
  for (const fs::path& folder : kept) EXPECT_TRUE(fs::exists(folder / "log")) << folder;
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::exists(target / "log"));
  EXPECT_TRUE(fs::exists(linked_lock / "log"));
  EXPECT_TRUE(fs::exists(without_lock / "log"));
}

TEST_F(ThreadStorageJanitor, NodesThatStartTogetherKeepTheirFolders) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int turn = 0; turn < 25; ++turn) {
        ThreadStorage storage;  // removes stale folders first, beside the others
        storage.open("log")->sync();
        EXPECT_TRUE(storage.exists("log"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(fs::is_empty(parent));
}

void write_file(const char* path, const std::string& text) { std::ofstream(path) << text; }

/// Makes a child that is process 1 of a PID namespace, keeps a folder, and ends without destructors
/// when the parent closes the pipe `life`. The child's child prints the folder.
bool keeps_folder_elsewhere(int life, int output) {
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) {
    const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
    if (::unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) != 0) return false;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", user + " " + user + " 1");
    write_file("/proc/self/gid_map", group + " " + group + " 1");
  }
  const pid_t child = ::fork();
  if (child != 0) return child > 0 && ::waitpid(child, nullptr, 0) == child;
  // In a container /proc shows the container's processes.
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0)
    ::mount("proc", "/proc", "proc", 0, nullptr);
  const auto* storage = new ThreadStorage;  // never destroyed, as in a killed process
  const std::string& folder = storage->folder();
  if (::write(output, folder.data(), folder.size()) < 0) ::_exit(1);
  ::close(output);
  char byte = 0;
  if (::read(life, &byte, 1) != 0) ::_exit(1);
  ::_exit(0);
}

TEST_F(ThreadStorageJanitor, KeepsTheFolderOfALiveNodeInAnotherPidNamespace) {
  int life[2], output[2];
  ASSERT_TRUE(::pipe2(life, O_CLOEXEC) == 0 && ::pipe2(output, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(life[1]);
    ::close(output[0]);
    ::_exit(keeps_folder_elsewhere(life[0], output[1]) ? 0 : 77);
  }
  ::close(life[0]);
  ::close(output[1]);
  char text[512] = {};
  const bool has_owner = ::read(output[0], text, sizeof text - 1) > 0;
  const fs::path folder = text;
  if (has_owner) {
    EXPECT_EQ(folder.filename().string().find("pyrdma-storage-1-"), 0U) << text;
    remove_stale_storage(parent);
    EXPECT_TRUE(fs::exists(folder)) << "its owner lives";
  }
  ::close(life[1]);
  ::close(output[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!has_owner) GTEST_SKIP() << "SKIPPED: this user may not make a PID namespace";
  remove_stale_storage(parent);
  EXPECT_FALSE(fs::exists(folder)) << "its owner has ended";
}

}  // namespace
}  // namespace pyrdma
