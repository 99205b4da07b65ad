#include "fabric/verbs/node.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "base/error.h"
#include "base/rng.h"

namespace pyrdma::fabric::verbs {
namespace {

ThreadEnvOptions env_options(const NodeOptions& options, const Welcome& welcome) {
  ThreadEnvOptions result;
  result.node = options.self;
  result.nodes = options.nodes;
  result.incarnation = welcome.incarnation;
  result.seed = welcome.incarnation == 0 ? welcome.seed : mix64(welcome.seed + welcome.incarnation);
  result.run = storage_run(options.token);
  result.clock = welcome.clock;
  result.threads_before = options.alone_in_process ? 1 : 0;
  return result;
}

}  // namespace

Node::Node(const NodeOptions& options)
    : options_(options), cores_(static_cast<int>(usable_cores().size())) {
  events_ = attach(options.session, options.self, options.nodes, options.token, Channel::kEvents,
                   &welcome_);
  rendezvous_ =
      std::make_unique<VerbsRendezvous>(*this, attach(options.session, options.self, options.nodes,
                                                      options.token, Channel::kCalls, &welcome_));
  if (options.machine) {
    welcome_.clock = options.machine->clock;
    welcome_.neighbours = options.machine->neighbours;
  }
  env_ = std::make_unique<ThreadEnv>(env_options(options, welcome_), *this);
  device_ = open_device(*this, options.wish);
  env_->attach(*device_);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0)
    throw Error(ErrorCode::kExhausted,
                "verbs: cannot create an event descriptor; raise the limit of open files");
  listener_ = std::thread([this] { listen(); });
}

Node::~Node() {
  ending_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  if (::write(wake_, &one, sizeof one) < 0 && errno != EAGAIN) std::abort();
  listener_.join();
  ::close(wake_);
  if (!is_killed()) rendezvous_->leave();
}

void Node::kill() {
  if (killed_.exchange(true)) return;
  device_->kill();
  events_.shut_down();  // the controller then treats the node as dead
}

void Node::on_slow_turn() {
  if (is_killed()) throw NodeKilled{};
  if (abandoned_.load(std::memory_order_acquire)) {
    throw Error(
        ErrorCode::kUnavailable,
        "verbs: the controller of this run does not answer: its process has ended, or the network "
        "to it is down");
  }
  // Requests of a port that is down need not end: Soft-RoCE sends again without counting, since its
  // own interface drops the packets. Nor does the kernel count the probes to the controller.
  const Time down_since = device_ == nullptr ? 0 : device_->port_down_since();
  if (down_since != 0 && env_->now() > down_since + kSilence) {
    const Choice& choice = device_->choice();
    throw Error(ErrorCode::kUnavailable,
                "verbs: port " + std::to_string(choice.port) + " of " + choice.device +
                    " has been down for " + std::to_string(kSilence / kSecond) +
                    " s; check its cable, its switch and 'pyrdma devices'");
  }
  if (stop_.load(std::memory_order_acquire)) throw Error(ErrorCode::kUnavailable, "stopped");
}

bool Node::crowded() const {
  const int neighbours = options_.alone_in_process ? static_cast<int>(welcome_.neighbours) : 0;
  return running().load(std::memory_order_relaxed) + neighbours > cores_;
}

void Node::listen() {
  pollfd queries[3] = {{wake_, POLLIN, 0},
                       {device_->event_descriptor(), POLLIN, 0},
                       {events_.descriptor(), POLLIN, 0}};
  while (!ending_.load(std::memory_order_acquire)) {
    if (::poll(queries, 3, -1) <= 0) continue;
    if (queries[1].revents != 0) device_->take_events();
    if ((queries[1].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0)
      queries[1].fd = -1;  // the descriptor is closed
    if (queries[2].revents == 0) continue;
    // A message means a stop; the end of the connection means the controller's end. A killed node
    // ignores both.
    Bytes message;
    const bool told = events_.receive(&message);
    if (!told) queries[2].fd = -1;
    if (is_killed()) continue;
    if (told)
      stop();
    else
      abandoned_.store(true, std::memory_order_release);
  }
}

}  // namespace pyrdma::fabric::verbs
