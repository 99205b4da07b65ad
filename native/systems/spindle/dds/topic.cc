#include "systems/spindle/dds/topic.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace pyrdma::spindle::dds {

namespace {

bool names_node(const std::vector<NodeId>& nodes, NodeId node) {
  return std::ranges::find(nodes, node) != nodes.end();
}

}  // namespace

bool Topic::has_publisher(NodeId node) const { return names_node(publishers, node); }
bool Topic::has_subscriber(NodeId node) const { return names_node(subscribers, node); }

SubgroupSpec Topic::subgroup() const {
  SubgroupSpec spec;
  std::set<NodeId> members(publishers.begin(), publishers.end());
  members.insert(subscribers.begin(), subscribers.end());
  spec.members.assign(members.begin(), members.end());
  spec.senders = publishers;
  spec.window = window;
  spec.max_message = max_sample;
  spec.order = qos == Qos::kUnordered ? Order::kUnordered : Order::kTotal;
  return spec;
}

void check_topics(const std::vector<Topic>& topics) {
  std::set<std::string_view> names;
  for (const Topic& topic : topics) {
    const auto refuse = [&](const std::string& why) {
      throw Error(ErrorCode::kInvalidArgument, "topic '" + topic.name + "': " + why);
    };
    if (topic.name.empty() || topic.name.size() > 100)
      refuse("a name has 1 to 100 bytes, not " + std::to_string(topic.name.size()));
    if (!names.insert(topic.name).second) refuse("there are two of this name; rename one");
    if (topic.publishers.empty()) refuse("no publisher; name at least one node");
    if (topic.subscribers.empty()) refuse("no subscriber; name at least one node");
    if (topic.history == 0 && topic.qos >= Qos::kVolatile)
      refuse("history is 0; keep at least 1 sample");
  }
}

}  // namespace pyrdma::spindle::dds
