// DatagramClient is the client of a node that sends datagrams and dynamically connected requests to
// all nodes, and uses the disk.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "fuzz/fabric/channel.h"
#include "fuzz/fabric/disk_log.h"
#include "fuzz/fabric/node.h"

namespace pyrdma::fuzz {

class DatagramClient {
 public:
  explicit DatagramClient(Node& node);
  ~DatagramClient();
  DatagramClient(const DatagramClient&) = delete;
  DatagramClient& operator=(const DatagramClient&) = delete;
  /// Runs until all clients of the run are done.
  void run();

 private:
  struct Peer {
    std::uint32_t version = 0;  // version of the address; 0: unknown
    NodeAddress address;
    std::unique_ptr<fabric::AddressHandle> handle;
  };
  void forget_connection();
  void set_up();
  void publish();
  void tear_down();
  void repair();
  void revive(fabric::QueuePair& qp);
  void fill_receives();
  Peer* reach(NodeId target);

  bool batch_is_due();
  void post_batch();
  void append_to_log(const PlannedOperation& op);
  bool prepare(Channel& channel, const PlannedOperation& op, std::size_t index);
  void accepted(Pending& pending);
  void ended(const Pending& pending, bool known, const std::byte* slot);
  void read_ended(const Pending& pending, const std::byte* slot);
  void atomic_ended(const Pending& pending, bool known, const std::byte* slot);
  void probe_ended(const Pending& pending, bool known);

  bool take_completions();
  void take(const fabric::Completion& completion);
  void received(const fabric::Completion& completion);
  bool post_receive(bool shared, std::uint32_t index);
  std::byte* receive_buffer(bool shared, std::uint32_t index);

  Node& node_;
  World& world_;
  Env& env_;
  ClientState& state_;
  std::byte* buffers_;
  const bool has_dc_;
  Channel datagrams_, dc_;
  DiskLog log_;
  std::unique_ptr<fabric::CompletionQueue> queue_;
  std::unique_ptr<fabric::SharedReceiveQueue> shared_receives_;
  std::unique_ptr<fabric::QueuePair> ud_, dc_initiator_, dc_target_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<fabric::AddressHandle>> old_handles_;  // requests may still use them
  std::uint32_t next_version_ = 0;
  Time next_batch_at_ = 0;
  bool overrun_ = false;
  std::array<bool, kDatagramReceives> posted_{};
  std::array<bool, kSharedReceives> shared_posted_{};
  std::array<fabric::Completion, 16> completions_;
};

}  // namespace pyrdma::fuzz
