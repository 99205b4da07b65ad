// Node processes are killed and started again, or stopped and continued.
#include <dirent.h>

#include "base/error.h"
#include "base/remote_word.h"
#include "fabric/shm/process_test.h"

namespace pyrdma::fabric::shm {
namespace {

std::size_t open_files() {
  std::size_t count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

/// Waits until the child has attached. A child starts slowly on a busy machine, and a node that
/// waits for the keys of an ended node gives up.
void await_attached(const Session& session, Env& env, std::uint32_t incarnation) {
  ASSERT_TRUE(env.poll_until(
      [&] { return session.incarnation(1) == incarnation && session.all_attached(); },
      env.now() + 20 * kSecond));
}

Status write_once(Objects& objects, Env& env) {
  EXPECT_TRUE(objects.qp->write(objects.region->sge(64, 8), objects.remote, 0));
  return objects.complete(env).status;
}

/// Writes until a write reports the peer's end, at most a second after `killed`.
void expect_unreachable(Objects& objects, Env& env, Time killed) {
  Status status = Status::kSuccess;
  while (status == Status::kSuccess && env.now() < killed + kSecond) {
    status = write_once(objects, env);
  }
  EXPECT_EQ(status, Status::kRetryExceeded);
  EXPECT_LT(env.now(), killed + kSecond);
}

TEST(ShmRestart, ARestartedNodeIsAnotherPeer) {
  Session session({2, 1});
  ShmNode self(session.name(), 0, 2, session.token());
  Env& env = self.env();
  EXPECT_EQ(env.incarnation(), 0U);
  std::size_t files = 0;
  std::size_t segments = 0;
  for (std::uint32_t incarnation = 0; incarnation < 8; ++incarnation) {
    Child child(role("victim", session, 1));
    await_attached(session, env, incarnation);
    Objects objects(env, incarnation);
    EXPECT_EQ(session.incarnation(1), incarnation);
    EXPECT_EQ(write_once(objects, env), Status::kSuccess);
    if (incarnation == 1) {
      files = open_files();
      segments = mapped_segments();
    } else if (incarnation > 1) {          // earlier incarnations leave nothing
      EXPECT_LE(open_files(), files + 2);  // one for each monitor, after its first look
      EXPECT_EQ(mapped_segments(), segments);
    }
    child.kill();
    const Time killed = env.now();
    if (incarnation % 2 == 0) session.end(1);  // the monitors must notice the other ends
    expect_unreachable(objects, env, killed);
    ASSERT_TRUE(env.poll_until([&] { return !session.dead_nodes().empty(); }, objects.deadline));
  }
}

TEST(ShmRestart, AQueuePairOfTheLastIncarnationStaysDead) {
  Session session({2, 1});
  ShmNode self(session.name(), 0, 2, session.token());
  Env& env = self.env();
  Child first(role("victim", session, 1));
  Objects before(env, 0);
  first.kill();
  session.end(1);
  // The node number is in use again before the old queue pair notices the end.
  Child second(role("victim", session, 1));
  await_attached(session, env, 1);
  Objects after(env, 1);
  EXPECT_EQ(write_once(before, env), Status::kRetryExceeded);
  EXPECT_EQ(write_once(after, env), Status::kSuccess);
  EXPECT_EQ(before.qp->state(), QpState::kError);
}

TEST(ShmRestart, OnlyAnEndedProcessIsReplaced) {
  Session session({2, 1});
  Child child(role("victim", session, 1));
  ShmNode self(session.name(), 0, 2, session.token());
  Env& env = self.env();
  const Objects objects(env, 0);
  EXPECT_THROW(ShmNode(session.name(), 1, 2, session.token()), Error);
  child.kill();
  session.end(1);
  session.end(1);
  ShmNode next(session.name(), 1, 2, session.token());
  EXPECT_EQ(next.env().incarnation(), 1U);
  EXPECT_NE(next.env().rng("any")(), Rng(1, 1, "any")());  // a restarted node draws other numbers
  EXPECT_TRUE(session.dead_nodes().empty());
}

TEST(ShmStop, MemoryOfAStoppedProcessAnswersAndItsThreadsResume) {
  Session session({2, 1});
  ShmNode self(session.name(), 0, 2, session.token());
  Env& env = self.env();
  Child child(role("server", session, 1));
  Objects objects(env);
  objects.device.rendezvous().await_value<int>("serving", objects.deadline);
  auto* word = reinterpret_cast<std::uint64_t*>(objects.region->data() + 8192);
  const Sge buffer = objects.region->sge(8192, 8);
  const auto ask = [&](std::uint64_t value) {
    ASSERT_TRUE(objects.qp->receive(buffer));
    *word = value;
    ASSERT_TRUE(objects.qp->send(buffer));
    ASSERT_EQ(objects.complete(env).status, Status::kSuccess);
  };
  ask(1);
  EXPECT_EQ(objects.complete(env).opcode, Opcode::kReceive);
  EXPECT_EQ(*word, 2U);
  env.sleep_until(env.now() + 20 * kMillisecond);  // the child now holds no lock of node 0
  child.signal(SIGSTOP);

  for (std::uint64_t i = 1; i <= 1000; ++i) {
    objects.words()[8] = i;
    ASSERT_EQ(write_once(objects, env), Status::kSuccess);
    ASSERT_TRUE(objects.qp->read(objects.region->sge(128, 8), objects.remote, 0));
    ASSERT_EQ(objects.complete(env).status, Status::kSuccess);
    ASSERT_EQ(objects.words()[16], i);
    ASSERT_TRUE(objects.qp->fetch_add(objects.region->sge(128, 8), objects.remote, 1024, 1));
    ASSERT_EQ(objects.complete(env).status, Status::kSuccess);
    ASSERT_EQ(objects.words()[16], i - 1);
  }
  ask(7);
  Completion answer;
  EXPECT_FALSE(env.poll_until(
      [&] {
        return objects.completions->poll({&answer, 1}) == 1;
      },
      env.now() + 200 * kMillisecond));
  EXPECT_TRUE(session.dead_nodes().empty());  // a stopped node is not dead
  child.signal(SIGCONT);
  EXPECT_EQ(objects.complete(env).opcode, Opcode::kReceive);
  EXPECT_EQ(*word, 8U);
}

}  // namespace
}  // namespace pyrdma::fabric::shm
