#include "systems/krcore/baselines/process_pool.h"

#include <mutex>
#include <utility>

#include "runtime/handshake.h"

namespace pyrdma::krcore {

ProcessPool::ProcessPool(Env& env, std::string name, std::uint32_t process)
    : env_(env), name_(std::move(name)), process_(process), mutex_(env) {}

fabric::ProtectionDomain& ProcessPool::open() {
  if (domain_ == nullptr) {
    env_.device().open();
    domain_ = env_.device().create_protection_domain();
  }
  return *domain_;
}

fabric::ProtectionDomain& ProcessPool::domain() {
  const std::lock_guard<Mutex> lock(mutex_);
  return open();
}

std::string ProcessPool::name_of(NodeId client, std::uint32_t process,
                                 std::uint32_t server_process) const {
  return name_ + '/' + std::to_string(client) + '.' + std::to_string(process) + '/' +
         std::to_string(server_process);
}

ProcessPool::Connection ProcessPool::make(NodeId node, const std::string& name, Time deadline) {
  Connection made;
  fabric::ProtectionDomain& domain = open();
  made.completions = env_.device().create_completion_queue(fabric::QpOptions{}.send_entries +
                                                           fabric::QpOptions{}.receive_entries);
  made.qp = env_.device().create_queue_pair(domain, *made.completions, *made.completions);
  runtime::Handshake handshake(env_, name, node);
  handshake.add(*made.qp);
  handshake.offer();
  handshake.await(deadline);
  handshake.connect();
  return made;
}

ProcessPool::Connection& ProcessPool::connect(NodeId node, std::uint32_t process, Time deadline) {
  const std::lock_guard<Mutex> lock(mutex_);
  const auto cached = active_.find({node, process});
  if (cached != active_.end()) {
    ++hits_;
    return cached->second;
  }
  Connection made = make(node, name_of(env_.node(), process_, process), deadline);
  return active_.emplace(Key{node, process}, std::move(made)).first->second;
}

ProcessPool::Connection& ProcessPool::accept(NodeId node, std::uint32_t process, Time deadline) {
  const std::lock_guard<Mutex> lock(mutex_);
  Connection made = make(node, name_of(node, process, process_), deadline);
  return passive_.emplace(Key{node, process}, std::move(made)).first->second;
}

}  // namespace pyrdma::krcore
