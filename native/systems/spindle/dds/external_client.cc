#include "systems/spindle/dds/external_client.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "runtime/caller.h"

namespace pyrdma::spindle::dds {

ExternalClient::ExternalClient(Env& env, const Options& options, std::vector<Topic> topics,
                               std::vector<NodeId> members)
    : env_(env),
      topics_(std::move(topics)),
      members_(std::move(members)),
      channel_((env.device().open(), env), options, ControlChannel::kEndpoint + 1) {
  if (members_.empty())
    throw Error(ErrorCode::kInvalidArgument, "an external client needs a member that relays");
}

void ExternalClient::publish(std::uint32_t topic, ByteView sample, Time timeout) {
  const std::uint32_t most =
      topic < topics_.size() ? std::min(topics_[topic].max_sample, kMostSample) : 0;
  if (topic >= topics_.size() || sample.size() > most) {
    throw Error(ErrorCode::kInvalidArgument, "topic " + std::to_string(topic) + ", a sample of " +
                                                 std::to_string(sample.size()) + " B; there are " +
                                                 std::to_string(topics_.size()) +
                                                 " topics, and a client may send this one " +
                                                 std::to_string(most) + " B");
  }
  Bytes request;
  ByteWriter out(request);
  out.put(topic);
  out.put(sample);
  const Time deadline = env_.now() + timeout;
  while (env_.now() < deadline) {
    struct Asked {
      bool is_over = false, is_delivered = false;
    };
    const auto asked = std::make_shared<Asked>();  // the answer may come after the deadline
    channel_.ask(members_[next_], ControlType::kPublish, request,
                 [asked](std::optional<ByteView> answer) {
                   asked->is_over = true;
                   asked->is_delivered = answer && answer->size() == 1;
                 });
    channel_.run_until([&] { return asked->is_over; }, deadline);
    if (asked->is_delivered) return;
    ++retries_;
    next_ = (next_ + 1) % members_.size();
  }
  throw Error(
      ErrorCode::kTimeout,
      "no member has said that all have the sample, though it may come; asked were the nodes" +
          runtime::text_of(members_) + ": are they publishers of topic '" + topics_[topic].name +
          "', and do its members go on?",
      false)
      .blaming(members_);
}

}  // namespace pyrdma::spindle::dds
