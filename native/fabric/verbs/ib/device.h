// A device opened for one node.
#pragma once
#include <atomic>
#include <mutex>
#include <set>

#include "fabric/verbs/ib/library.h"
#include "fabric/verbs/ib/records.h"
#include "fabric/verbs/node.h"

namespace pyrdma::fabric::verbs {

/// Silenceable stops answering when its node is killed.
class Silenceable {
 public:
  virtual void silence() = 0;

 protected:
  ~Silenceable() = default;
};

/// An answer does not stop Soft-RoCE's timer of an attempt. When the timer expires, Soft-RoCE sends
/// again whatever is under way, in a race with the answer: an atomic may be executed twice (Linux
/// 6.1, rxe_req.c and rxe_comp.c). Packets are lost only when the wire is cut, so two attempts of
/// two seconds suffice. This is the rarest resend possible, and long enough for a peer on a machine
/// with more runnable threads than CPUs.
inline constexpr std::uint32_t kSoftRoceTimeoutUs = 2'000'000;
inline constexpr std::uint32_t kSoftRoceRetries = 1;

class VerbsDomain final : public ProtectionDomain {
 public:
  explicit VerbsDomain(ibv_context* context);
  ibv_pd* pd() const { return pd_.get(); }
  /// Every object made in the domain keeps it, because the kernel frees no domain that is in use.
  const std::shared_ptr<ibv_pd>& share() const { return pd_; }

 private:
  std::shared_ptr<ibv_pd> pd_;
};

class VerbsAddressHandle final : public AddressHandle {
 public:
  VerbsAddressHandle(const VerbsDomain& domain, ibv_ah_attr attributes);
  ~VerbsAddressHandle() override;
  ibv_ah* handle() const { return handle_; }

 private:
  std::shared_ptr<ibv_pd> domain_;
  ibv_ah* handle_;
};

class VerbsDevice final : public NodeDevice {
 public:
  VerbsDevice(Node& node, const Choice& choice);
  ~VerbsDevice() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  const std::string& name() const override { return choice_.device; }
  void open() override {}  // the constructor opens it: capabilities need the context
  Rendezvous& rendezvous() override { return node_.rendezvous(); }
  std::vector<Notice> notices() override;

  std::unique_ptr<ProtectionDomain> create_protection_domain() override;
  std::unique_ptr<MemoryRegion> allocate(ProtectionDomain& pd, std::size_t bytes,
                                         std::uint32_t access) override;
  std::unique_ptr<MemoryRegion> register_memory(ProtectionDomain& pd, void* data, std::size_t bytes,
                                                std::uint32_t access) override;
  std::unique_ptr<MemoryRegion> allocate_device_memory(ProtectionDomain& pd, std::size_t bytes,
                                                       std::uint32_t access) override;
  std::unique_ptr<CompletionQueue> create_completion_queue(std::uint32_t entries) override;
  std::unique_ptr<SharedReceiveQueue> create_shared_receive_queue(ProtectionDomain& pd,
                                                                  std::uint32_t entries,
                                                                  std::uint32_t max_sges) override;
  std::unique_ptr<QueuePair> create_queue_pair(ProtectionDomain& pd, CompletionQueue& send_queue,
                                               CompletionQueue& receive_queue,
                                               const QpOptions& options,
                                               SharedReceiveQueue* shared_receives) override;
  std::unique_ptr<AddressHandle> create_address_handle(ProtectionDomain& pd, const QpAddress& peer,
                                                       const PathOptions& path) override;

  int event_descriptor() const override { return context_->async_fd; }
  void take_events() override;
  Time port_down_since() const override { return port_down_since_.load(std::memory_order_acquire); }
  void kill() override;
  const Choice& choice() const override { return choice_; }

  // For the objects that the device made.
  Node& node() { return node_; }
  ibv_context* context() const { return context_; }
  RecordTable& records() { return records_; }
  std::uint8_t port() const { return static_cast<std::uint8_t>(choice_.port); }
  ibv_mtu mtu() const { return port_.active_mtu; }
  /// The kernel's software device differs from NICs; README.md lists the differences.
  bool is_soft_roce() const { return attributes_.vendor_id == 0xffffff; }
  bool is_port_up() const;
  /// Returns the rights of `access` as the device takes them: none to atomics that it lacks.
  int rights_of(std::uint32_t access) const;
  /// Returns the route to a peer. Throws Error(kInvalidArgument) for a node outside the run.
  ibv_ah_attr route_to(const QpAddress& peer, const PathOptions& path) const;
  /// Returns this node's address without the numbers of a queue pair. The low byte of its path is
  /// the MTU, the high byte the kind of GID.
  QpAddress address() const;
  void add(Silenceable& queue_pair);
  void remove(Silenceable& queue_pair);
  /// Adds `notice` to notices() unless it is there.
  void note(const Notice& notice);

 private:
  std::uint16_t kind_of_path() const;
  void read_capabilities();
  void check_region(std::size_t bytes, std::uint32_t access) const;
  void check_transport(Transport transport) const;
  void check_path(const PathOptions& path) const;
  void check_count(const char* what, std::uint64_t value, std::uint64_t least,
                   std::uint64_t most) const;

  Node& node_;
  Choice choice_;
  ibv_context* context_ = nullptr;
  ibv_device_attr attributes_{};
  ibv_port_attr port_{};
  ibv_gid gid_{};
  Capabilities capabilities_;
  RecordTable records_;
  std::mutex events_mutex_;
  std::mutex mutex_;  // guards the members below
  std::set<Silenceable*> queue_pairs_;
  std::vector<Notice> notices_;
  std::atomic<Time> port_down_since_{0};
};

/// Throws the error of a failed call of libibverbs: the attempted action `what`, errno in words,
/// and `remedy`.
[[noreturn]] void throw_failed(const std::string& what, int error, const std::string& remedy = "");

}  // namespace pyrdma::fabric::verbs
