// Rings between an application and the daemon: in one process in all worlds, and over the socket
// between processes.
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/error_test.h"
#include "fabric/shm/process_test.h"
#include "runtime/node_barrier.h"
#include "systems/krcore/ring/application.h"
#include "systems/krcore/ring/attachment.h"
#include "systems/krcore/ring/daemon.h"
#include "systems/krcore/ring/server.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore::ring {
namespace {

using fabric::Opcode;
using fabric::Status;

/// A ring whose two ends are threads of one node.
class Local final : public Link {
 public:
  explicit Local(Service& service)
      : shared_(std::make_unique<Shared>()),
        server(service, *shared_, [this](const Registration& made) { made_ = made; }) {
    thread_ = service.env().spawn("daemon", [this, &service] {
      while (!stops_.load())
        service.env().poll_until([this] { return server.serve() || stops_.load(); },
                                 service.env().now() + 10 * kMicrosecond);
    });
    application = std::make_unique<Application>(service.env(), *shared_, *this);
  }
  ~Local() override { stops_.store(true); }
  Shared& shared() { return *shared_; }

 private:
  std::byte* take_memory(std::uint32_t key, std::uint64_t /*bytes*/) override {
    EXPECT_EQ(key, made_.key);
    return made_.data;
  }
  void give_back(std::uint32_t /*key*/) override {}
  void ring_doorbell() override {}
  bool has_daemon() override { return true; }

  std::unique_ptr<Shared> shared_;
  Registration made_;
  std::atomic<bool> stops_{false};

 public:
  Server server;
  std::unique_ptr<Application> application;

 private:
  std::unique_ptr<Thread> thread_;
};

fabric::Completion do_one(Application& app, Queue queue, const fabric::WorkRequest& request) {
  fabric::Completion done;
  done.status = Status::kGeneral;
  const PushResult pushed = app.push(queue, {&request, 1});
  if (pushed.error != fabric::PostError::kNone)
    done.status = pushed.status;
  else
    app.wait(queue, {&done, 1}, app.env().now() + 10 * kSecond);
  return done;
}

void receive(Application& app, Queue queue, const Registration& own, std::uint64_t slot) {
  const fabric::Sge sge = piece(own, slot * 256, 256);
  const fabric::ReceiveRequest request{slot, &sge, 1};
  ASSERT_EQ(app.post_receive(queue, {&request, 1}).accepted, 1u);
}

/// Two applications of different nodes write, read, send and answer.
void use_far_node(Application& app, NodeId self, Env& env) {
  const Registration own = app.reg_mr(65536);
  const auto key = [](NodeId node) { return "ring/region/" + std::to_string(node); };
  env.device().rendezvous().publish_value(key(self),
                                          fabric::RemoteRegion{own.addr, own.bytes, own.key, self});
  const Queue inbox = app.create_queue();
  app.bind(inbox, 7);
  for (std::uint64_t slot = 0; slot < 4; ++slot) receive(app, inbox, own, slot);
  runtime::node_barrier(env, "ring/bound");
  const NodeId peer = 1 - self;
  const auto there = env.device().rendezvous().await_value<fabric::RemoteRegion>(
      key(peer), env.now() + runtime::kSetupTimeout);
  const Queue queue = app.create_queue();
  app.connect(queue, peer, 7);
  const std::uint64_t value = 1000 + self;
  std::memcpy(own.data + 8192, &value, sizeof value);
  const fabric::Sge from = piece(own, 8192, 8), into = piece(own, 8200, 8);
  EXPECT_EQ(
      do_one(app, queue, one_sided(Opcode::kWrite, from, there.addr + 4096, there.rkey)).status,
      Status::kSuccess);
  EXPECT_EQ(
      do_one(app, queue, one_sided(Opcode::kRead, into, there.addr + 4096, there.rkey)).status,
      Status::kSuccess);
  EXPECT_EQ(std::memcmp(own.data + 8200, &value, sizeof value), 0);
  EXPECT_EQ(
      do_one(app, queue, one_sided(Opcode::kWrite, from, there.addr + 65536, there.rkey)).status,
      Status::kRemoteAccess);
  fabric::WorkRequest send = one_sided(Opcode::kSend, from, 0, 0, 9);
  EXPECT_EQ(do_one(app, queue, send).wr_id, 9u);
  Message message;
  ASSERT_EQ(app.wait_messages(inbox, {&message, 1}, env.now() + 10 * kSecond), 1u);
  const std::uint64_t expected = 1000 + peer;
  EXPECT_EQ(message.bytes, 8u);
  EXPECT_EQ(message.from, peer);
  EXPECT_EQ(std::memcmp(own.data + message.wr_id * 256, &expected, sizeof expected), 0);
  // The answer goes to the peer's queue, which has a receive of its own.
  receive(app, queue, own, 8);
  runtime::node_barrier(env, "ring/asked");
  EXPECT_EQ(do_one(app, message.reply, send).status, Status::kSuccess);
  ASSERT_EQ(app.wait_messages(queue, {&message, 1}, env.now() + 10 * kSecond), 1u);
  EXPECT_EQ(message.wr_id, 8u);
  runtime::node_barrier(env, "ring/answered");
  app.dereg_mr(own);
  app.destroy(queue);
  EXPECT_TRUE(refuses(
      [&] {
        app.push(queue, {&send, 1});
      },
      ErrorCode::kInvalidArgument, {"queue", "none of the application's"}));
}

class KrcoreRing : public KrcoreWorlds {};
INSTANTIATE_TEST_SUITE_P(Worlds, KrcoreRing, krcore_worlds(),
                         [](const auto& info) { return info.param; });

TEST_P(KrcoreRing, ApplicationsReachEachOther) {
  run(2, options(), [&](Service& service, const Kill&) {
    Local ring(service);
    use_far_node(*ring.application, service.env().node(), service.env());
    runtime::node_barrier(service.env(), "done");
  });
}

TEST_P(KrcoreRing, BadUseNamesTheFix) {
  Options few = options();
  few.app_queues = 3;
  few.app_bytes = 8192;
  run(2, few, [&](Service& service, const Kill&) {
    Local ring(service);
    Application& app = *ring.application;
    const Queue queue = app.create_queue();
    const Queue other = app.create_queue();
    app.create_queue();
    EXPECT_TRUE(refuses([&] { app.create_queue(); }, ErrorCode::kExhausted, {"3", "app_queues"}));
    EXPECT_TRUE(refuses([&] { app.reg_mr(8193); }, ErrorCode::kExhausted, {"8193", "app_bytes"}));
    EXPECT_TRUE(refuses([&] { app.reg_mr(0); }, ErrorCode::kInvalidArgument, {"0 bytes"}));
    EXPECT_TRUE(
        refuses([&] { app.connect(queue, 9, 7); }, ErrorCode::kInvalidArgument, {"9", "0 to 1"}));
    EXPECT_TRUE(refuses([&] { app.bind(queue, 70000); }, ErrorCode::kInvalidArgument, {"70000"}));
    const App::Target targets[] = {{queue, 1 - service.env().node(), 7}, {other, 9, 7}};
    EXPECT_TRUE(refuses([&] { app.connect(targets); }, ErrorCode::kInvalidArgument, {"9"}));
    app.connect(queue, 1 - service.env().node(), 7);
    EXPECT_TRUE(
        refuses([&] { app.connect(queue, 0, 7); }, ErrorCode::kInvalidArgument, {"connected"}));
    fabric::WorkRequest request;
    const std::vector<fabric::WorkRequest> list(kRequests + 1, request);
    EXPECT_EQ(app.push(queue, list).error, fabric::PostError::kInvalid);
    runtime::node_barrier(service.env(), "done");
  });
}

// A deaf application: its completions and messages stay in the service, and others go on.
TEST_P(KrcoreRing, ADeafApplicationStarvesNobody) {
  run(2, options(), [&](Service& service, const Kill&) {
    Env& env = service.env();
    Local deaf(service), other(service);
    for (Local* ring : {&deaf, &other}) {
      Application& app = *ring->application;
      const Registration own = app.reg_mr(4096);
      const Queue queue = app.create_queue();
      app.connect(queue, env.node(), 7);
      const fabric::Sge sge = piece(own, 0, 8);
      const fabric::WorkRequest request = one_sided(Opcode::kWrite, sge, own.addr, own.key);
      std::uint64_t accepted = 0, failures = 0;
      fabric::Completion done;
      for (std::uint64_t i = 0; i < 2 * kCompletions; ++i) {
        const PushResult pushed = app.push(queue, {&request, 1});
        accepted += pushed.accepted;
        failures += pushed.error == fabric::PostError::kQueueFull ? 1 : 0;
        if (ring == &other) {
          ASSERT_EQ(app.wait(queue, {&done, 1}, env.now() + 10 * kSecond), 1u);
        }
      }
      if (ring == &other) {
        EXPECT_EQ(accepted, 2 * kCompletions);
      } else {
        EXPECT_GT(failures, 0u);  // the queue is full, and nothing is lost
        std::uint64_t taken = 0;
        while (taken < accepted) taken += app.wait(queue, {&done, 1}, env.now() + 10 * kSecond);
        EXPECT_EQ(app.pop(queue, {&done, 1}), 0u);
      }
    }
    runtime::node_barrier(env, "done");
  });
}

// The daemon's view of slots that hold anything. Its own neighbour works on.
TEST_P(KrcoreRing, AnyBytesInTheRingHarmNobodyElse) {
  Options bounded = options();
  bounded.app_bytes = 1 << 20;  // slots ask for any size
  run(2, bounded, [&](Service& service, const Kill&) {
    Env& env = service.env();
    Local good(service);
    auto hostile = std::make_unique<Shared>();
    Server server(service, *hostile, [](const Registration&) {});
    Application& app = *good.application;
    const Registration own = app.reg_mr(4096);
    const Queue queue = app.create_queue();
    app.connect(queue, env.node(), 7);
    Rng rng = env.rng("hostile ring");
    std::uint64_t position = 0;
    const int rounds = GetParam() == "shm" ? 20'000 : 3000;
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t slots = 1 + rng.below(4);
      for (std::uint64_t i = slots; i-- > 0;) {
        RequestSlot& slot = hostile->requests[(position + i) % kRequests];
        slot.command = static_cast<std::uint8_t>(rng.below(14));
        slot.opcode = static_cast<std::uint8_t>(rng.below(16));
        slot.work_flags = static_cast<std::uint8_t>(rng());
        slot.flags = i + 1 == slots || rng.below(8) == 0 ? kLast : 0;
        // Numbers of its own, of the neighbour, and of nobody.
        slot.queue = rng.below(2) == 0 ? queue.number() : static_cast<std::uint32_t>(rng());
        slot.length = static_cast<std::uint32_t>(rng() >> rng.below(40));
        slot.lkey = rng.below(2) == 0 ? own.key : static_cast<std::uint32_t>(rng());
        slot.rkey = rng.below(2) == 0 ? own.key : static_cast<std::uint32_t>(rng.below(4));
        slot.local_addr = rng.below(2) == 0 ? own.addr : rng();
        slot.remote_addr = rng.below(2) == 0 ? own.addr : rng();
        slot.first = rng() >> rng.below(64);
        slot.second = rng() >> rng.below(64);
        slot.turn.store(static_cast<std::uint32_t>((position + i) / kRequests + 1));
      }
      position += slots;
      if (rng.below(4) == 0) hostile->header.taken.store(rng());
      for (int i = 0; i < 8; ++i) server.serve();
    }
    EXPECT_GT(server.malformed(), 100u);
    const fabric::Sge sge = piece(own, 0, 8);
    EXPECT_EQ(do_one(app, queue, one_sided(Opcode::kWrite, sge, own.addr, own.key)).status,
              Status::kSuccess);
    runtime::node_barrier(env, "done");
  });
}

// ---- over the socket ----

class Folder {
 public:
  Folder() {
    std::string name = "/tmp/pyrdma-ring-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    name_ = name;
  }
  ~Folder() { std::filesystem::remove_all(name_); }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

class KrcoreDaemon : public KrcoreWorlds {};
INSTANTIATE_TEST_SUITE_P(Worlds, KrcoreDaemon, testing::Values("shm"),
                         [](const auto& info) { return info.param; });

TEST_P(KrcoreDaemon, ApplicationsReachEachOther) {
  const Folder folder;
  run(2, options(), [&](Service& service, const Kill&) {
    Daemon daemon(service, folder.name());
    Attachment attachment(daemon.path());
    EXPECT_EQ(attachment.application().node(), service.env().node());
    use_far_node(attachment.application(), service.env().node(), service.env());
    EXPECT_EQ(daemon.applications(), 1u);
    // The request to a destroyed queue; the daemon counts when it rests.
    service.env().poll_until([&] { return daemon.malformed() != 0; },
                             service.env().now() + 10 * kSecond);
    EXPECT_EQ(daemon.malformed(), 1u);
    runtime::node_barrier(service.env(), "done");
  });
}

TEST_P(KrcoreDaemon, BadUseNamesTheFix) {
  const Folder folder;
  run(1, options(), [&](Service& service, const Kill&) {
    EXPECT_TRUE(refuses([&] { const Attachment none(folder.name() + "/node-0"); },
                        ErrorCode::kUnavailable, {"no daemon", "listen()"}));
    EXPECT_TRUE(refuses([&] { const Daemon none(service, folder.name() + std::string(120, 'x')); },
                        ErrorCode::kInvalidArgument, {"shorter folder"}));
    {
      const Daemon daemon(service, folder.name());
      struct stat info {};
      ASSERT_EQ(::stat(daemon.path().c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, 0600u);
      EXPECT_TRUE(refuses([&] { const Daemon second(service, folder.name()); },
                          ErrorCode::kUnavailable, {"another daemon", folder.name()}));
    }
    EXPECT_FALSE(std::filesystem::exists(folder.name() + "/node-0"));
    ::chmod(folder.name().c_str(), 0755);
    EXPECT_TRUE(refuses([&] { const Daemon open(service, folder.name()); }, ErrorCode::kUnavailable,
                        {"chmod 700", folder.name()}));
  });
}

TEST_P(KrcoreDaemon, AnEndedDaemonIsATypedError) {
  const Folder folder;
  run(1, options(), [&](Service& service, const Kill&) {
    auto daemon = std::make_unique<Daemon>(service, folder.name());
    Attachment attachment(daemon->path());
    attachment.application().nothing();
    daemon.reset();
    EXPECT_TRUE(refuses([&] { attachment.application().nothing(); }, ErrorCode::kUnavailable,
                        {"daemon", "has ended", "attach anew"}));
    fabric::Completion done;
    EXPECT_TRUE(refuses(
        [&] {
          attachment.application().wait({}, {&done, 1});
        },
        ErrorCode::kUnavailable, {"has ended"}));
  });
}

// The child of the test below: holds a port, memory and a queue until it is killed.
TEST(KrcoreRingChild, DISABLED_Runs) {
  const char* role = std::getenv(fabric::shm::kRole);
  if (role == nullptr) GTEST_SKIP() << "a child process of another test";
  Attachment attachment(role);
  Application& app = attachment.application();
  const Registration own = app.reg_mr(1 << 16);
  const Queue inbox = app.create_queue();
  receive(app, inbox, own, 0);
  app.bind(inbox, 7);
  for (;;) {
    Message message;
    app.wait_messages(inbox, {&message, 1});
  }
}

TEST_P(KrcoreDaemon, AKilledApplicationFreesAllItHad) {
  const Folder folder;
  run(2, options(), [&](Service& service, const Kill&) {
    Env& env = service.env();
    if (env.node() == 1) {
      runtime::node_barrier(env, "done");
      return;
    }
    Daemon daemon(service, folder.name());
    const std::uint64_t regions_before = service.regions().ending();
    fabric::shm::Child child(daemon.path(), "KrcoreRingChild.DISABLED_Runs");
    App probe(service);
    const Queue own = probe.create_queue();
    const auto is_taken = [&] {
      try {
        probe.bind(own, 7);
      } catch (const Error&) {
        return true;
      }
      service.unbind(own);
      return false;
    };
    const Time limit = env.now() + 20 * kSecond;
    while (!is_taken() && env.now() < limit) env.sleep_until(env.now() + kMillisecond);
    ASSERT_TRUE(is_taken());
    EXPECT_EQ(daemon.applications(), 1u);
    child.kill();
    while (is_taken() && env.now() < limit) env.sleep_until(env.now() + kMillisecond);
    EXPECT_FALSE(is_taken());
    // Its memory is free after the lease.
    while ((daemon.applications() != 0 || service.regions().ending() != regions_before) &&
           env.now() < limit)
      env.sleep_until(env.now() + kMillisecond);
    EXPECT_EQ(daemon.applications(), 0u);
    EXPECT_EQ(service.regions().ending(), regions_before);
    runtime::node_barrier(env, "done");
  });
}

}  // namespace
}  // namespace pyrdma::krcore::ring
