// A device opened for one node.
#pragma once
#include <mutex>
#include <set>

#include "fabric/verbs/ib/library.h"
#include "fabric/verbs/ib/records.h"
#include "fabric/verbs/node.h"

namespace pyrdma::fabric::verbs {

/// What falls silent when its node is killed.
class Silenceable {
 public:
  virtual void silence() = 0;

 protected:
  ~Silenceable() = default;
};

/// Soft-RoCE's timer of an attempt is not stopped when an answer comes, so whenever it runs out,
/// what happens to be under way is sent again; and sending again races with the answer: of an
/// atomic that was answered meanwhile, a second one may be made (Linux 6.1, rxe_req.c and
/// rxe_comp.c). Packets are lost only with a wire that is cut, so two attempts of two seconds do:
/// as rare as can be, and long enough for a peer on a machine with more to run than CPUs.
inline constexpr std::uint32_t kSoftRoceTimeoutUs = 2'000'000;
inline constexpr std::uint32_t kSoftRoceRetries = 1;

class VerbsDomain final : public ProtectionDomain {
 public:
  explicit VerbsDomain(ibv_context* context);
  ibv_pd* pd() const { return pd_.get(); }
  /// Kept by all that is made in it, since the kernel frees no domain that is in use.
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
  void open() override {}  // the constructor has done it: capabilities need the context
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
  std::unique_ptr<AddressHandle> create_address_handle(ProtectionDomain& pd,
                                                       const QpAddress& peer) override;

  int event_descriptor() const override { return context_->async_fd; }
  void take_events() override;
  void kill() override;
  const Choice& choice() const override { return choice_; }

  // For the objects that it made.
  Node& node() { return node_; }
  ibv_context* context() const { return context_; }
  RecordTable& records() { return records_; }
  std::uint8_t port() const { return static_cast<std::uint8_t>(choice_.port); }
  ibv_mtu mtu() const { return port_.active_mtu; }
  /// The kernel's software device, which differs from NICs in the ways that README.md lists.
  bool is_soft_roce() const { return attributes_.vendor_id == 0xffffff; }
  bool is_port_up() const;
  /// The way to a peer. Throws Error(kInvalidArgument) for a node that the run does not have.
  ibv_ah_attr route_to(const QpAddress& peer) const;
  /// This node's end, without the numbers of a queue pair. Its path: the MTU in the low byte, the
  /// kind of GID above.
  QpAddress address() const;
  void add(Silenceable& queue_pair);
  void remove(Silenceable& queue_pair);
  /// Adds to notices() what is not there yet.
  void note(const Notice& notice);

 private:
  std::uint16_t kind_of_path() const;
  void read_capabilities();
  void probe_inline();
  void check_region(std::size_t bytes, std::uint32_t access) const;
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
  std::mutex mutex_;  // what follows
  std::set<Silenceable*> queue_pairs_;
  std::vector<Notice> notices_;
};

/// The error of a call of libibverbs that failed: what it was to do, errno in words.
[[noreturn]] void throw_failed(const std::string& what, int error, const std::string& remedy = "");

}  // namespace pyrdma::fabric::verbs
