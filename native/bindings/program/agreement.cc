#include "bindings/program/agreement.h"

#include <utility>

#include "fabric/fabric.h"

namespace pyrdma::bindings {

std::string Agreement::key(NodeId node, std::uint32_t change) const {
  return name_ + "/quiet/" + std::to_string(node) + '/' + std::to_string(change);
}

void Agreement::publish(Env& env) {
  std::uint32_t& own = changes_[env.node()];
  env.device().rendezvous().publish_value(key(env.node(), own++), std::uint8_t{1});
}

void Agreement::is_active(Env& env) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (changes_[env.node()] % 2 == 1) publish(env);
}

bool Agreement::is_quiet(Env& env) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (changes_[env.node()] % 2 == 0) publish(env);
  std::uint64_t sum = 0;
  for (const NodeId node : members_) {
    std::uint32_t& known = changes_[node];
    while (node != env.node() && env.device().rendezvous().find(key(node, known))) ++known;
    if (known % 2 == 0) return false;
    sum += known;
  }
  return std::exchange(last_, sum) == sum;
}

}  // namespace pyrdma::bindings
