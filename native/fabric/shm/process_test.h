// Nodes as processes: the test program starts itself again for the other nodes (ShmChild, or a test
// of the caller's), kills them and stops them.
#pragma once
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/shm/cluster.h"

extern char** environ;

namespace pyrdma::fabric::shm {

inline constexpr char kRole[] = "PYRDMA_TEST_SHM_CHILD";

/// A child process; the destructor kills it with -9.
class Child {
 public:
  explicit Child(const std::string& role, const std::string& test = "ShmChild.DISABLED_Runs") {
    std::string variable = kRole;
    variable.append("=").append(role);
    std::vector<char*> environment{variable.data()};
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (!divides_tests(*entry)) environment.push_back(*entry);
    environment.push_back(nullptr);
    std::vector<std::string> words{"native_tests", "--gtest_filter=" + test,
                                   "--gtest_also_run_disabled_tests", "--gtest_brief=1"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, arguments.data(),
                          environment.data()),
              0);
  }
  ~Child() { kill(); }
  void kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }
  /// Sends SIGSTOP or SIGCONT. After SIGSTOP it returns when the process has stopped.
  void signal(int number) {
    ::kill(pid_, number);
    int status = 0;
    if (number == SIGSTOP) {
      EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    }
  }
  pid_t pid() const { return pid_; }

 private:
  // A run of one shard would perhaps leave out the child's only test.
  static bool divides_tests(std::string_view variable) {
    return variable.starts_with("GTEST_TOTAL_SHARDS=") ||
           variable.starts_with("GTEST_SHARD_INDEX=") ||
           variable.starts_with("GTEST_SHARD_STATUS_FILE=");
  }
  pid_t pid_ = 0;
};

/// A region and a queue pair that is connected to the given incarnation of the other node of two.
struct Objects {
  explicit Objects(Env& env, std::uint32_t peer_incarnation = 0) : device(env.device()) {
    pd = device.create_protection_domain();
    region = device.allocate(*pd, 1 << 16, kAllAccess);
    completions = device.create_completion_queue(256);
    qp = device.create_queue_pair(*pd, *completions, *completions);
    deadline = env.now() + 20 * kSecond;
    self = std::to_string(env.node()) + "." + std::to_string(env.incarnation()) + "/" +
           std::to_string(peer_incarnation);
    peer = std::to_string(1 - env.node()) + "." + std::to_string(peer_incarnation) + "/" +
           std::to_string(env.incarnation());
    device.rendezvous().publish_value("qp" + self, qp->address());
    device.rendezvous().publish_value("region" + self, region->remote());
    qp->connect(device.rendezvous().await_value<QpAddress>("qp" + peer, deadline));
    remote = device.rendezvous().await_value<RemoteRegion>("region" + peer, deadline);
    device.rendezvous().publish_value("ready" + self, 1);
    device.rendezvous().await_value<int>("ready" + peer, deadline);
  }
  Completion complete(Env& env) {
    Completion c;
    c.status = Status::kGeneral;
    EXPECT_TRUE(env.poll_until([&] { return completions->poll({&c, 1}) == 1; }, deadline));
    return c;
  }
  std::uint64_t* words() { return reinterpret_cast<std::uint64_t*>(region->data()); }

  Device& device;
  std::unique_ptr<ProtectionDomain> pd;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<CompletionQueue> completions;
  std::unique_ptr<QueuePair> qp;
  Time deadline;
  std::string self, peer;
  RemoteRegion remote;
};

/// Counts the memory files that this process has mapped.
inline std::size_t mapped_segments() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:pyrdma") != std::string::npos ? 1 : 0;
  return count;
}

inline std::string role(const std::string& what, const Session& session, NodeId node) {
  return what + " " + session.name() + " " + session.token() + " " + std::to_string(node);
}

}  // namespace pyrdma::fabric::shm
