#include "systems/krcore/ring/daemon.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <new>

#include "base/error.h"
#include "fabric/shm/segment.h"
#include "systems/krcore/ring/server.h"

namespace pyrdma::krcore::ring {

namespace {

constexpr std::uint32_t kMostApplications = 256;
constexpr Time kBusy = 100 * kMicrosecond;  // without work, before the daemon rests
constexpr Time kNap = 20 * kMicrosecond;    // while messages may come
constexpr int kSleepMs = 10;                // then it looks whether the node has ended

}  // namespace

struct Daemon::Client {
  Descriptor socket, doorbell;
  std::shared_ptr<fabric::shm::Mapping> memory;
  std::unique_ptr<Thread> thread;
  std::atomic<bool> has_ended{false};
  Shared& shared() const { return *std::launder(reinterpret_cast<Shared*>(memory->data())); }
};

Daemon::Daemon(Service& service, const std::string& folder)
    : service_(service), env_(service.env()) {
  if (!env_.device().capabilities().own_files) {
    throw Error(ErrorCode::kInvalidArgument,
                "krcore: no other process can map the memory of this device, as that of a "
                "simulated node; open a cluster on shm or verbs, or use Service.app()");
  }
  path_ = folder + "/node-" + std::to_string(env_.node());
  listener_ = listen_in(folder, path_);
  thread_ = env_.spawn("krcore-listen", [this] { listen(); });
}

Daemon::~Daemon() {
  stops_.store(true, std::memory_order_release);
  thread_.reset();
  ::unlink(path_.c_str());
}

void Daemon::listen() {
  while (!stops_.load(std::memory_order_acquire)) {
    env_.sleep_until(env_.now());  // ends with the node
    std::erase_if(clients_, [](const auto& client) { return client->has_ended.load(); });
    pollfd wanted{listener_.get(), POLLIN, 0};
    if (::poll(&wanted, 1, kSleepMs) != 1) continue;
    auto client = std::make_unique<Client>();
    client->socket = accept_own(listener_.get());
    if (client->socket.get() < 0 || clients_.size() >= kMostApplications) continue;
    client->doorbell = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    try {
      client->memory = fabric::shm::Mapping::create(sizeof(Shared));
    } catch (const Error&) {
      continue;  // the machine has no memory or descriptor for it; it learns that it is turned away
    }
    ++applications_;
    client->thread = env_.spawn("krcore-ring", [this, made = client.get()] { serve(*made); });
    clients_.push_back(std::move(client));
  }
  clients_.clear();
}

void Daemon::serve(Client& client) {
  struct End {
    Daemon& daemon;
    Client& client;
    ~End() {
      --daemon.applications_;
      client.has_ended.store(true);
    }
  } const end{*this, client};
  const int socket = client.socket.get();
  Server server(service_, client.shared(), [&](const Registration& made) {
    const std::uint64_t page = 4096;
    const Note note{(made.bytes + page - 1) / page * page, made.key, kVersion};
    // The application waits for it. One that does not take it hangs up.
    send_files(socket, note, {&made.file, 1});
  });
  const std::array files{client.memory->descriptor(), client.doorbell.get()};
  if (!send_files(socket, {sizeof(Shared), 0, kVersion}, files)) return;
  std::uint64_t counted = 0;
  while (!stops_.load(std::memory_order_acquire)) {
    if (env_.poll_until([&] { return server.serve(); }, env_.now() + kBusy)) continue;
    malformed_ += server.malformed() - counted;
    counted = server.malformed();
    if (has_hung_up(socket)) return;
    if (server.awaits_completions()) continue;
    if (server.awaits()) {
      env_.sleep_until(env_.now() + kNap);
      continue;
    }
    std::atomic<std::uint32_t>& sleeps = client.shared().header.daemon_sleeps;
    sleeps.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!server.serve()) {
      std::array<pollfd, 2> wanted{{{client.doorbell.get(), POLLIN, 0}, {socket, POLLIN, 0}}};
      ::poll(wanted.data(), wanted.size(), kSleepMs);
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t size = ::read(client.doorbell.get(), &rings, sizeof rings);
    }
    sleeps.store(0, std::memory_order_relaxed);
  }
}

}  // namespace pyrdma::krcore::ring
