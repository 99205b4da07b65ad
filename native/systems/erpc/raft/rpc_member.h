// RpcMember is one member of a replicated store whose messages and clients come as RPCs (eRPC,
// section 7.1): an endpoint, a member with its state, and the server of clients' commands. One
// thread does it all.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "systems/erpc/endpoint.h"
#include "systems/erpc/raft/kv_server.h"
#include "systems/erpc/raft/kv_state.h"
#include "systems/erpc/raft/member.h"
#include "systems/erpc/raft/rpc_links.h"

namespace pyrdma::erpc::raft {

struct RpcMemberOptions {
  Options endpoint;
  MemberOptions member;  // max_message follows from the endpoint's
  /// Nodes that are heard from the begin, beside those of `member.group`. A member that waits to be
  /// added names members of its group here; without any it hears all nodes until it is added.
  std::vector<NodeId> contacts;
  /// Bytes of a request with a Raft message; a longer message goes in parts (RpcLinks). 0: as many
  /// as the endpoint's max_message.
  std::size_t longest_request = 0;
  KvState::Options state;
  KvServer::Options server;
  /// A command that came at the first time was applied, and is being answered at the second one.
  std::function<void(Time came, Time applied)> on_applied;
};

class RpcMember {
 public:
  /// Makes endpoint 0 of the node. Throws Error(kUnavailable) without libraft.
  RpcMember(Env& env, const RpcMemberOptions& options);

  /// Serves until done() or `deadline`; returns done(). Throws Error(kUnavailable) if the member
  /// has stopped.
  bool run_until(FunctionRef<bool()> done, Time deadline);

  Endpoint& endpoint() { return endpoint_; }
  Member& member() { return *member_; }
  KvState& state() { return state_; }
  const RpcLinks& links() const { return *links_; }

 private:
  bool has_work() const;
  void take_command(const RequestHandle& handle);

  Env& env_;
  const std::function<void(Time, Time)> on_applied_;
  std::unique_ptr<RpcLinks> links_;  // before the endpoint: it outlives it
  Endpoint endpoint_;
  KvState state_;
  std::unique_ptr<Member> member_;
  std::unique_ptr<KvServer> server_;
};

}  // namespace pyrdma::erpc::raft
