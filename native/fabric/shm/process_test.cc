// Nodes as processes: this test program starts itself again for the others (ShmChild), and kills
// them.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/remote_word.h"
#include "env/storage.h"
#include "env/thread/thread_storage.h"
#include "fabric/fabric.h"
#include "fabric/shm/cluster.h"

extern char** environ;

namespace pyrdma::fabric::shm {
namespace {

constexpr char kRole[] = "PYRDMA_TEST_SHM_CHILD";

/// A child process; killed with -9 at the latest when the test ends.
class Child {
 public:
  explicit Child(const std::string& role) {
    const std::string variable = std::string(kRole) + "=" + role;
    std::vector<char*> environment{const_cast<char*>(variable.c_str())};
    for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
    environment.push_back(nullptr);
    std::vector<std::string> words{"native_tests", "--gtest_filter=ShmChild.DISABLED_Runs",
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
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

struct Objects {
  explicit Objects(Env& env) : device(env.device()) {
    pd = device.create_protection_domain();
    region = device.allocate(*pd, 1 << 16, kAllAccess);
    completions = device.create_completion_queue(256);
    qp = device.create_queue_pair(*pd, *completions, *completions);
    deadline = env.now() + 20 * kSecond;
    self = std::to_string(env.node());
    peer = std::to_string(1 - env.node());
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

// The peer of PingPong and of the victims. Under load: it writes to node 0 without end, from a real
// folder's files.
void echo(Env& env, bool forever) {
  Objects objects(env);
  std::uint64_t round = 0;
  while (forever || round < 1000) {
    ++round;
    if (!forever) {
      ASSERT_TRUE(env.poll_until([&] { return load_acquire(&objects.words()[0]) == round; },
                                 objects.deadline));
      objects.words()[8] = round;
    }
    ASSERT_TRUE(objects.qp->write(objects.region->sge(64, 8), objects.remote, forever ? 4096 : 0));
    ASSERT_EQ(objects.complete(env).status, Status::kSuccess);
    if (forever && round == 1)
      env.storage().open("left behind")->write(0, std::as_bytes(std::span("data")));
  }
}

TEST(ShmChild, DISABLED_Runs) {
  const char* role = std::getenv(kRole);
  ASSERT_NE(role, nullptr);
  std::istringstream words(role);
  std::string what, name, token;
  NodeId node = 0;
  words >> what >> name >> token >> node;
  if (what == "controller") {  // `name` is a file to write the session to
    const Session session({2, 1});
    std::ofstream(name + ".part") << session.name() << " " << session.token();
    std::filesystem::rename(name + ".part", name);
    for (;;) ::pause();
  }
  ShmNode self(name, node, 2, token);
  echo(self.env(), what == "victim");
}

std::string role(const std::string& what, const Session& session, NodeId node) {
  return what + " " + session.name() + " " + session.token() + " " + std::to_string(node);
}

TEST(ShmProcess, PingPong) {
  const Session session({2, 1});
  ShmNode self(session.name(), 0, 2, session.token());
  Child child(role("echo", session, 1));
  Env& env = self.env();
  Objects objects(env);
  EXPECT_TRUE(session.all_attached());
  for (std::uint64_t round = 1; round <= 1000; ++round) {
    objects.words()[8] = round;
    ASSERT_TRUE(objects.qp->write(objects.region->sge(64, 8), objects.remote, 0));
    ASSERT_EQ(objects.complete(env).status, Status::kSuccess);
    ASSERT_TRUE(env.poll_until([&] { return load_acquire(&objects.words()[0]) == round; },
                               objects.deadline));
  }
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(session.dead_nodes().empty());  // it left
}

TEST(ShmProcess, KilledPeerIsUnreachableWithinASecond) {
  const Session session({2, 1});
  ShmNode self(session.name(), 0, 2, session.token());
  Child child(role("victim", session, 1));
  Env& env = self.env();
  Objects objects(env);
  ASSERT_TRUE(env.poll_until([&] { return objects.words()[0] == 0; }, objects.deadline));
  ASSERT_TRUE(objects.qp->write(objects.region->sge(64, 8), objects.remote, 0));
  ASSERT_EQ(objects.complete(env).status, Status::kSuccess);
  const auto folder = [&] {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
      if (entry.path().filename().string().find("pyrdma-storage-" + std::to_string(child.pid()) +
                                                "-") == 0) {
        return entry.path();
      }
    }
    return std::filesystem::path();
  };
  ASSERT_TRUE(env.poll_until([&] { return !folder().empty(); }, objects.deadline));
  const std::filesystem::path left = folder();

  child.kill();
  const Time killed = env.now();
  Completion c;
  do {
    ASSERT_TRUE(objects.qp->write(objects.region->sge(64, 8), objects.remote, 0, 1));
    c = objects.complete(env);
  } while (c.status == Status::kSuccess && env.now() < killed + kSecond);
  EXPECT_EQ(c.status, Status::kRetryExceeded);
  ASSERT_TRUE(objects.qp->write(objects.region->sge(64, 8), objects.remote, 0, 2));
  EXPECT_EQ(objects.complete(env).status, Status::kFlushed);
  EXPECT_EQ(objects.qp->state(), QpState::kError);
  EXPECT_LT(env.now(), killed + kSecond);

  try {
    objects.device.rendezvous().await("never", kForever);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ended: 1"), std::string::npos) << error.what();
  }
  ASSERT_TRUE(env.poll_until([&] { return !session.dead_nodes().empty(); }, objects.deadline));
  EXPECT_EQ(session.dead_nodes(), std::vector<NodeId>{1});

  // Nothing is left: no shared memory has a name, and the next storage of this user removes the
  // folder.
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(entry.path().filename().string().find("pyrdma"), std::string::npos);
  }
  const ThreadStorage storage;
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST(ShmProcess, TheEndOfTheControllerStopsTheNodes) {
  const std::string file =
      std::filesystem::temp_directory_path() / ("pyrdma-test-" + std::to_string(::getpid()));
  Child controller("controller " + file);
  std::string name, token;
  for (int i = 0; i < 2000 && token.empty(); ++i) {
    std::ifstream(file) >> name >> token;
    ::usleep(10000);
  }
  std::filesystem::remove(file);
  ShmNode self(name, 0, 2, token);
  controller.kill();
  Env& env = self.env();
  EXPECT_THROW(env.poll_until([] { return false; }, env.now() + 10 * kSecond), Error);
}

TEST(ShmProcess, WrongWordsAreRefused) {
  const Session session({2, 1});
  const ShmNode taken(session.name(), 0, 2, session.token());
  EXPECT_THROW(ShmNode(session.name(), 0, 2, session.token()), Error);
  EXPECT_THROW(ShmNode(session.name(), 2, 2, session.token()), Error);
  EXPECT_THROW(ShmNode(session.name(), 1, 3, session.token()), Error);
  EXPECT_THROW(ShmNode(session.name(), 1, 2, std::string(64, '0')), Error);
  EXPECT_THROW(ShmNode("shm-1-0-1", 1, 2, session.token()), Error);
  EXPECT_THROW(ShmNode("nonsense", 1, 2, session.token()), Error);
  EXPECT_THROW(Session({0, 1}), Error);
  EXPECT_THROW(Session({kMaxNodes + 1, 1}), Error);
}

}  // namespace
}  // namespace pyrdma::fabric::shm
