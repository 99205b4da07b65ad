// An Env that writes a trace of what its node asks of the device: each call of the control path,
// each request, and each system call of an application.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "env/env_decorator.h"
#include "fabric/fabric.h"

namespace pyrdma::krcore {

/// The trace of a run. All nodes share it, since a simulation is one thread.
struct TraceLog {
  std::vector<std::string> roles;  // of each node
  std::string text;
  bool is_on = false;
  std::map<const fabric::AddressHandle*, NodeId> handles;  // where they lead

  /// Threads of a service are on other cores than the application's, which is on core 0. A thread
  /// may be ahead of others in virtual time; those come first.
  void add(Env& env, const std::string& what) {
    if (!is_on) return;
    env.catch_up();
    text += roles[env.node()] + (env.core() == 0 ? ": " : " in the background: ") + what + "\n";
  }
};

class TracedQueuePair final : public fabric::QueuePair {
 public:
  TracedQueuePair(std::unique_ptr<QueuePair> inner, Env& env, TraceLog& log)
      : inner_(std::move(inner)), env_(env), log_(log) {}
  fabric::Transport transport() const override { return inner_->transport(); }
  std::uint32_t qp_num() const override { return inner_->qp_num(); }
  fabric::QpState state() const override { return inner_->state(); }
  fabric::QpAddress address() const override { return inner_->address(); }
  bool is_quiet() const override { return inner_->is_quiet(); }
  fabric::PostResult post_receive(std::span<const fabric::ReceiveRequest> requests) override {
    return inner_->post_receive(requests);
  }
  fabric::PostResult post(std::span<const fabric::WorkRequest> requests) override {
    for (const fabric::WorkRequest& request : requests) {
      std::uint64_t bytes = 0;
      for (std::uint32_t i = 0; i < request.sge_count; ++i) bytes += request.sges[i].length;
      const NodeId to =
          request.address_handle == nullptr ? peer_ : log_.handles.at(request.address_handle);
      log_.add(env_, std::string(to_string(request.opcode)) + ' ' + std::to_string(bytes) +
                         " bytes, " + to_string(transport()) + " to " + log_.roles.at(to));
    }
    return inner_->post(requests);
  }
  void modify(fabric::QpState next, const fabric::QpAddress* peer) override {
    if (peer != nullptr) peer_ = peer->node;
    log_.add(env_, std::string("change to ") + to_string(next));
    inner_->modify(next, peer);
  }

 private:
  std::unique_ptr<QueuePair> inner_;
  Env& env_;
  TraceLog& log_;
  NodeId peer_ = fabric::kNoNode;
};

class TracedRendezvous final : public fabric::Rendezvous {
 public:
  TracedRendezvous(Rendezvous& inner, Env& env, TraceLog& log)
      : inner_(inner), env_(env), log_(log) {}
  void publish(std::string_view key, std::span<const std::byte> value) override {
    log_.add(env_, "handshake, offer");
    inner_.publish(key, value);
  }
  std::optional<std::vector<std::byte>> find(std::string_view key) override {
    log_.add(env_, "handshake, look");
    return inner_.find(key);
  }
  std::vector<std::byte> await(std::string_view key, Time deadline) override {
    std::vector<std::byte> found = inner_.await(key, deadline);
    log_.add(env_, "handshake, the other's offer");
    return found;
  }

 private:
  Rendezvous& inner_;
  Env& env_;
  TraceLog& log_;
};

class TracedDevice final : public fabric::Device {
 public:
  TracedDevice(Device& inner, Env& env, TraceLog& log)
      : inner_(inner), env_(env), log_(log), rendezvous_(inner.rendezvous(), env, log) {}
  const fabric::Capabilities& capabilities() const override { return inner_.capabilities(); }
  const std::string& name() const override { return inner_.name(); }
  fabric::Rendezvous& rendezvous() override { return rendezvous_; }
  void open() override {
    log_.add(env_, "open");
    inner_.open();
  }
  std::unique_ptr<fabric::ProtectionDomain> create_protection_domain() override {
    log_.add(env_, "create a protection domain");
    return inner_.create_protection_domain();
  }
  std::unique_ptr<fabric::MemoryRegion> allocate(fabric::ProtectionDomain& pd, std::size_t bytes,
                                                 std::uint32_t access) override {
    log_.add(env_, "register memory");
    return inner_.allocate(pd, bytes, access);
  }
  std::unique_ptr<fabric::MemoryRegion> register_memory(fabric::ProtectionDomain& pd, void* data,
                                                        std::size_t bytes,
                                                        std::uint32_t access) override {
    log_.add(env_, "register memory");
    return inner_.register_memory(pd, data, bytes, access);
  }
  std::unique_ptr<fabric::MemoryRegion> allocate_device_memory(fabric::ProtectionDomain& pd,
                                                               std::size_t bytes,
                                                               std::uint32_t access) override {
    log_.add(env_, "register device memory");
    return inner_.allocate_device_memory(pd, bytes, access);
  }
  std::unique_ptr<fabric::CompletionQueue> create_completion_queue(std::uint32_t entries) override {
    log_.add(env_, "create a completion queue");
    return inner_.create_completion_queue(entries);
  }
  std::unique_ptr<fabric::SharedReceiveQueue> create_shared_receive_queue(
      fabric::ProtectionDomain& pd, std::uint32_t entries, std::uint32_t max_sges) override {
    log_.add(env_, "create a shared receive queue");
    return inner_.create_shared_receive_queue(pd, entries, max_sges);
  }
  std::unique_ptr<fabric::QueuePair> create_queue_pair(
      fabric::ProtectionDomain& pd, fabric::CompletionQueue& sends,
      fabric::CompletionQueue& receives, const fabric::QpOptions& options,
      fabric::SharedReceiveQueue* shared) override {
    log_.add(env_, std::string("create a queue pair, ") + to_string(options.transport));
    return std::make_unique<TracedQueuePair>(
        inner_.create_queue_pair(pd, sends, receives, options, shared), env_, log_);
  }
  std::unique_ptr<fabric::AddressHandle> create_address_handle(
      fabric::ProtectionDomain& pd, const fabric::QpAddress& peer,
      const fabric::PathOptions& path) override {
    auto handle = inner_.create_address_handle(pd, peer, path);
    log_.handles[handle.get()] = peer.node;
    return handle;
  }

 private:
  Device& inner_;
  Env& env_;
  TraceLog& log_;
  TracedRendezvous rendezvous_;
};

class TracedEnv final : public EnvDecorator {
 public:
  TracedEnv(Env& inner, TraceLog& log)
      : EnvDecorator(inner), log_(log), device_(inner.device(), inner, log) {}
  fabric::Device& device() override { return device_; }

 protected:
  void charge_model(Cost cost, std::uint64_t count) override {
    if (cost == Cost::kSystemCall) log_.add(inner_, "system call");
    EnvDecorator::charge_model(cost, count);
  }

 private:
  TraceLog& log_;
  TracedDevice device_;
};

}  // namespace pyrdma::krcore
