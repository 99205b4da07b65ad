// A client outside of the domain: a member relays its samples (section 4.6). A sample that is
// relayed reaches all subscribers or none, like one of the member's own.
//
// The relay answers when all members of the topic have delivered the sample. So it stays if any of
// them stays, whatever becomes of the relay. A logged topic has it in the file of each subscriber
// then, and with sync_every = 1 on each one's disk. While the domain has no subscriber of a topic,
// nobody keeps its samples. An unordered topic promises less, as to a member: a sample that is
// under way when a member dies may miss some subscribers.
//
// A client that gets no answer asks another member. The first one may have sent the sample all the
// same, and later. So each sample comes at least once, and those that come first are in the order
// of publish(); a second copy may come after later samples. A client that must tell copies apart
// puts a number into each sample. Relays keep nothing of a client but the requests under way.
#pragma once
#include <string>
#include <vector>

#include "systems/spindle/dds/topic.h"
#include "systems/spindle/membership/control_channel.h"

namespace pyrdma::spindle::dds {

class ExternalClient {
 public:
  static constexpr std::uint32_t kMostSample = ControlChannel::kMostResponse - 64;  // bytes

  /// `options` and `topics` are those of the domain; `members` are nodes that publish its topics.
  /// One client per node and domain; the node is no participant.
  ExternalClient(Env& env, const Options& options, std::vector<Topic> topics,
                 std::vector<NodeId> members);

  /// Returns once all members of the topic have delivered the sample. Throws Error(kTimeout), not
  /// definite, naming the members, after `timeout`, and Error(kInvalidArgument) for a sample that
  /// is longer than the topic allows or than kMostSample. Cost: a relay looks at requests with each
  /// heartbeat, so one or two of these.
  void publish(std::uint32_t topic, ByteView sample, Time timeout);
  std::uint64_t retries() const { return retries_; }

 private:
  Env& env_;
  const std::vector<Topic> topics_;
  const std::vector<NodeId> members_;
  ControlChannel channel_;
  std::size_t next_ = 0;
  std::uint64_t retries_ = 0;
};

}  // namespace pyrdma::spindle::dds
