// A client outside of the domain: a member relays its samples (section 4.6). A sample that is
// relayed reaches all subscribers or none, like one of the member's own. A client that gets no
// answer asks again, maybe another member, so a sample may then come twice.
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

  /// Returns once a member has queued the sample. Throws Error(kTimeout), naming the members, after
  /// `timeout`, and Error(kInvalidArgument) for a sample that is longer than the topic allows or
  /// than kMostSample.
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
