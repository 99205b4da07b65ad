// Nodes as processes that meet, die and get refused.
#include "fabric/shm/process_test.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "base/error_test.h"
#include "base/remote_word.h"
#include "env/storage.h"
#include "env/thread/thread_storage.h"
#include "fabric/shm/segment.h"

namespace pyrdma::fabric::shm {
namespace {

// The peer of PingPong, and the victim. The victim writes to node 0 without end and leaves a file
// in a real folder.
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

// Answers each message with its first word plus one.
void serve(Env& env) {
  Objects objects(env);
  const Sge buffer = objects.region->sge(8192, 8);
  auto* word = reinterpret_cast<std::uint64_t*>(objects.region->data() + 8192);
  ASSERT_TRUE(objects.qp->receive(buffer));
  objects.device.rendezvous().publish_value("serving", 1);
  for (;;) {
    ASSERT_EQ(objects.complete(env).opcode, Opcode::kReceive);
    ++*word;
    ASSERT_TRUE(objects.qp->send(buffer));
    ASSERT_EQ(objects.complete(env).status, Status::kSuccess);
    ASSERT_TRUE(objects.qp->receive(buffer));
  }
}

// Adds a byte to a file, and says how many it has.
void keep(Env& env) {
  const auto file = env.storage().open("log");
  const std::byte byte{1};
  file->write(file->size(), {&byte, 1});
  env.device().rendezvous().publish_value("stored" + std::to_string(env.incarnation()),
                                          file->size());
  for (;;) ::pause();
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
  if (what == "server") return serve(self.env());
  if (what == "keeper") return keep(self.env());
  echo(self.env(), what == "victim");
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
  EXPECT_TRUE(session.dead_nodes().empty());  // the peer has left
}

// A process that ends closes its files first. The requester has not mapped the region yet, and the
// monitor does not know of the end.
TEST(ShmProcess, AFirstRequestToAnEndingPeerFindsItSilent) {
  for (int round = 0; round < 8; ++round) {
    const Session session({2, 1});
    ShmNode self(session.name(), 0, 2, session.token());
    Child child(role("server", session, 1));
    Env& env = self.env();
    Objects objects(env);
    ASSERT_TRUE(objects.qp->write(objects.region->sge(64, 0), objects.remote, 0));
    ASSERT_EQ(objects.complete(env).status, Status::kSuccess);  // it names no region
    const std::string file = file_of(child.pid(), 0);
    child.signal(SIGKILL);
    while (::access(file.c_str(), F_OK) == 0 && env.now() < objects.deadline) {
    }
    ASSERT_TRUE(objects.qp->write(objects.region->sge(64, 8), objects.remote, 0));
    EXPECT_EQ(objects.complete(env).status, Status::kRetryExceeded);
  }
}

TEST(ShmProcess, KilledPeerIsUnreachableWithinASecond) {
  std::optional<Session> session(std::in_place, SessionOptions{2, 1});
  ShmNode self(session->name(), 0, 2, session->token());
  Child child(role("victim", *session, 1));
  Env& env = self.env();
  Objects objects(env);
  ASSERT_TRUE(env.poll_until([&] { return objects.words()[0] == 0; }, objects.deadline));
  ASSERT_TRUE(objects.qp->write(objects.region->sge(64, 8), objects.remote, 0));
  ASSERT_EQ(objects.complete(env).status, Status::kSuccess);
  // Until its lock file says whose it is, a folder may be removed and made again.
  const auto folder = [&] {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::temp_directory_path())) {
      if (entry.path().filename().string().find("pyrdma-storage-" + std::to_string(child.pid()) +
                                                "-") == 0 &&
          std::ifstream(entry.path() / ".lock").peek() != std::ifstream::traits_type::eof()) {
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

  EXPECT_TRUE(refuses([&] { objects.device.rendezvous().await("never", kForever); },
                      ErrorCode::kUnavailable, {"never", "1"}));
  ASSERT_TRUE(env.poll_until([&] { return !session->dead_nodes().empty(); }, objects.deadline));
  EXPECT_EQ(session->dead_nodes(), std::vector<NodeId>{1});

  // The dead node leaves no shared memory that has a name, and its folder only until the end of the
  // run.
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(entry.path().filename().string().find("pyrdma"), std::string::npos);
  }
  { const ThreadStorage of_another_run; }
  EXPECT_TRUE(std::filesystem::exists(left));
  session.reset();
  EXPECT_FALSE(std::filesystem::exists(left));
}

// The keeper adds a byte to its file at each start.
TEST(ShmProcess, ARestartedNodeFindsWhatItHasStored) {
  Session session({2, 1});
  ShmNode self(session.name(), 0, 2, session.token());
  Env& env = self.env();
  for (std::uint32_t incarnation = 0; incarnation < 3; ++incarnation) {
    Child child(role("keeper", session, 1));
    const std::string key = "stored" + std::to_string(incarnation);
    EXPECT_EQ(env.device().rendezvous().await_value<std::uint64_t>(key, env.now() + 20 * kSecond),
              incarnation + 1);
    child.kill();
    session.end(1);
  }
}

// The test program may run as one shard of several.
TEST(ShmProcess, AChildRunsWhateverTheShard) {
  struct Setting {
    Setting(const char* variable, const char* value) : name(variable) {
      if (const char* now = std::getenv(name)) before = now;
      ::setenv(name, value, 1);
    }
    ~Setting() {
      if (before) {
        ::setenv(name, before->c_str(), 1);
      } else {
        ::unsetenv(name);
      }
    }
    const char* name;
    std::optional<std::string> before;
  };
  const Setting shards("GTEST_TOTAL_SHARDS", "2"), second("GTEST_SHARD_INDEX", "1");
  Session session({2, 1});
  ShmNode self(session.name(), 0, 2, session.token());
  const Child child(role("keeper", session, 1));
  Env& env = self.env();
  EXPECT_EQ(
      env.device().rendezvous().await_value<std::uint64_t>("stored0", env.now() + 20 * kSecond),
      1U);
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
