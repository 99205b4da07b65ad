// Link is the client that uses one reliable and one unreliable connection to one peer; it is also
// the other end of the peer's connections. When either connection breaks, both ends set up new
// ones: the next generation.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fuzz/fabric/channel.h"
#include "fuzz/fabric/node.h"

namespace pyrdma::fuzz {

/// The records in the stamps of sends, over the reliable and the unreliable connection.
constexpr std::uint32_t kSendRecord = 0xf0, kUcSendRecord = 0xf1;

class Link {
 public:
  Link(Node& node, NodeId peer);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  /// Runs until all clients of the run are done.
  void run();

 private:
  bool connect();
  void serve();
  void hang_up();

  void forget_earlier();

  // requests: link_requests.cc
  bool batch_is_due();
  void post_batch();
  void prepare(Channel& channel, const PlannedOperation& op, std::size_t index);
  void accepted(Pending& pending);
  void ended(const Pending& pending, bool known, const std::byte* slot);
  void read_ended(const Pending& pending, const std::byte* slot);
  void atomic_ended(const Pending& pending, bool known, const std::byte* slot);
  void probe_ended(const Pending& pending, bool known);

  // completions: link_receives.cc
  bool take_completions();
  void take(const fabric::Completion& completion);
  void received(const fabric::Completion& completion);
  void judge_reliable(const fabric::Completion& completion, const std::byte* buffer);
  void judge_unreliable(const fabric::Completion& completion, const std::byte* buffer);
  void post_receive(bool reliable, std::uint32_t index);

  Stream& sent(bool reliable) {
    return (reliable ? state_.reliable : state_.unreliable)[generation_ % 2];
  }
  Place place_there(std::uint32_t record) const { return {state_.id, record, there_.incarnation}; }
  bool must_succeed() const;
  std::byte* receive_buffer(bool reliable, std::uint32_t index);

  Node& node_;
  World& world_;
  Env& env_;
  const NodeId peer_;
  ClientState& state_;
  ClientState& peer_state_;
  std::byte* buffers_;
  Channel reliable_channel_, unreliable_channel_;
  std::unique_ptr<fabric::CompletionQueue> queue_;
  std::unique_ptr<fabric::QueuePair> reliable_, unreliable_;
  std::uint32_t generation_ = 0;
  PairState::Side there_;  // the peer's side in this generation
  Time next_batch_at_ = 0;
  std::vector<std::uint64_t> last_seen_;  // versions last seen in the peer's registers
  std::uint32_t next_version_ = 0;        // next version of the batch in preparation
  struct {
    std::uint8_t record = 0;
    std::uint32_t version = 0;
  } last_written_;  // on this connection
  bool broken_ = false;
  std::array<fabric::Completion, 16> completions_;
};

}  // namespace pyrdma::fuzz
