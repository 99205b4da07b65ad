#include "systems/krcore/app.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "systems/krcore/scopes.h"

namespace pyrdma::krcore {

App::App(Service& service)
    : service_(service), number_(service.next_number()), mutex_(service.env()) {}

App::~App() {
  service_.end_app(number_);
  for (const auto& [key, bytes] : regions_) service_.regions().remove(key);
}

Queue App::create_queue(VqpOptions options) {
  enter();
  options.app = number_;
  if (options.domain == 0) options.domain = number_;
  const Queue queue = service_.create(options);
  if (!queue && service_.queues_of(number_) >= service_.options().app_queues) {
    throw Error(ErrorCode::kExhausted, "krcore: the application has its " +
                                           std::to_string(service_.options().app_queues) +
                                           " virtual queue pairs; destroy some, or raise "
                                           "Options::app_queues");
  }
  if (!queue) {
    throw Error(ErrorCode::kExhausted,
                "krcore: all " + std::to_string(service_.options().virtual_queue_pairs) +
                    " virtual queue pairs of the node are in use; destroy some, or raise "
                    "Options::virtual_queue_pairs");
  }
  return queue;
}

void App::destroy(Queue queue) {
  enter();
  service_.destroy(queue);
}

Registration App::reg_mr(std::uint64_t bytes, std::uint32_t access) {
  enter();
  const std::lock_guard<Mutex> lock(mutex_);
  if (const std::uint64_t most = service_.options().app_bytes; bytes > most - bytes_) {
    throw Error(ErrorCode::kExhausted,
                "krcore: " + std::to_string(bytes) + " bytes more than the " +
                    std::to_string(bytes_) + " that the application has registered pass its " +
                    std::to_string(most) + "; remove some, or raise Options::app_bytes");
  }
  const Registration region = service_.regions().allocate(bytes, access, number_);
  regions_[region.key] = region.bytes;
  bytes_ += region.bytes;
  return region;
}

void App::dereg_mr(const Registration& region) {
  enter();
  service_.regions().remove(region.key);
  const std::lock_guard<Mutex> lock(mutex_);
  const auto known = regions_.find(region.key);
  if (known == regions_.end()) return;
  bytes_ -= known->second;
  regions_.erase(known);
}

void App::bind(Queue queue, std::uint32_t port) {
  enter();
  if (port == 0 || port > 0xffff) {
    throw Error(ErrorCode::kInvalidArgument,
                "krcore: port " + std::to_string(port) + " is not from 1 to 65535");
  }
  if (!service_.bind(queue, port)) {
    throw Error(ErrorCode::kInvalidArgument, "krcore: port " + std::to_string(port) + " of node " +
                                                 std::to_string(env().node()) +
                                                 " is bound already; choose another one");
  }
}

void App::check_connected(ConnectResult result, NodeId node) {
  switch (result) {
    case ConnectResult::kConnected:
      return;
    case ConnectResult::kAlreadyConnected:
      throw Error(ErrorCode::kInvalidArgument,
                  "krcore: the queue is connected already; create another one for node " +
                      std::to_string(node));
    case ConnectResult::kBadId:
      throw Error(ErrorCode::kInvalidArgument, "krcore: the queue has been destroyed");
    case ConnectResult::kUnknownNode:
      if (node >= env().nodes()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "krcore: node " + std::to_string(node) +
                        " does not exist; the cluster has nodes 0 to " +
                        std::to_string(env().nodes() - 1));
      }
      throw Error(ErrorCode::kUnavailable,
                  "krcore: node " + std::to_string(node) +
                      " has no service that answers; is its process alive?")
          .blaming({node});
    case ConnectResult::kNoRoom:
      throw Error(ErrorCode::kExhausted,
                  "krcore: this node or node " + std::to_string(node) + " has its " +
                      std::to_string(service_.options().rc_queue_pairs) +
                      " reliable connections, and the device has no dynamic ones; raise "
                      "Options::rc_queue_pairs")
          .blaming({node});
    case ConnectResult::kNoServer:
      throw Error(ErrorCode::kUnavailable,
                  "krcore: no meta server answers, and node " + std::to_string(node) +
                      " does not either; start a service on one of Options::meta_servers")
          .blaming({node});
  }
}

void App::connect(Queue queue, NodeId node, std::uint32_t port) {
  const Target target{queue, node, port};
  connect({&target, 1});
}

void App::connect(std::span<const Target> targets) {
  enter();
  // The caller may try again what it has tried.
  struct Connected {
    Service& service;
    std::vector<Queue> queues;
    ~Connected() {
      for (const Queue queue : queues) service.disconnect(queue);
    }
  } connected{service_, {}};
  for (const Target& target : targets) {
    check_connected(service_.connect(target.queue, target.node, target.port), target.node);
    connected.queues.push_back(target.queue);
  }
  connected.queues.clear();
}

PushResult App::push(Queue queue, std::span<const fabric::WorkRequest> list,
                     std::span<fabric::Completion> completions, std::size_t* taken) {
  const Scope step(env(), scope::call);
  enter();
  const PushResult result = service_.push(queue, list);
  std::size_t count = 0;
  if (result.error == fabric::PostError::kNone && !completions.empty())
    count = service_.wait(queue, completions, kForever);
  if (taken != nullptr) *taken = count;
  return result;
}

std::size_t App::push(std::span<const Post> posts) {
  enter();
  for (std::size_t i = 0; i < posts.size(); ++i)
    if (service_.push(posts[i].queue, {&posts[i].request, 1}).accepted != 1) return i;
  return posts.size();
}

std::size_t App::pop(Queue queue, std::span<fabric::Completion> out) {
  const Scope step(env(), scope::call);
  enter();
  return service_.poll(queue, out);
}

std::size_t App::wait(Queue queue, std::span<fabric::Completion> out, Time deadline) {
  const Scope step(env(), scope::call);
  enter();
  return service_.wait(queue, out, deadline);
}

std::size_t App::wait_each(std::span<const Post> posts) {
  enter();
  std::vector<VqpId> left;
  for (const Post& post : posts) left.push_back(post.queue);
  std::size_t most = 0;
  env().poll_until(
      [&] {
        most = std::max(most, service_.poll_physical(left));
        fabric::Completion done;
        std::erase_if(left, [&](VqpId id) { return service_.take(id, {&done, 1}) == 1; });
        return left.empty();
      },
      kForever);
  return most;
}

fabric::PostResult App::post_receive(Queue queue,
                                     std::span<const fabric::ReceiveRequest> requests) {
  enter();
  return service_.post_receive(queue, requests);
}

std::size_t App::pop_messages(Queue queue, std::span<Message> out) {
  const Scope step(env(), scope::call);
  enter();
  return service_.pop_messages(queue, out);
}

std::size_t App::wait_messages(Queue queue, std::span<Message> out, Time deadline) {
  const Scope step(env(), scope::call);
  enter();
  std::size_t count = 0;
  env().poll_until(
      [&] {
        count = service_.pop_messages(queue, out);
        return count != 0;
      },
      deadline);
  return count;
}

}  // namespace pyrdma::krcore
