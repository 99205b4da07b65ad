#include "systems/erpc/raft/rpc_member.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace pyrdma::erpc::raft {

RpcMember::RpcMember(Env& env, const RpcMemberOptions& options)
    : env_(env),
      on_applied_(options.on_applied),
      endpoint_(env, options.endpoint, 0),
      state_(env, options.state) {
  std::vector<NodeId> peers = options.member.group;
  peers.insert(peers.end(), options.contacts.begin(), options.contacts.end());
  std::erase(peers, env.node());
  std::ranges::sort(peers);
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  links_ = std::make_unique<RpcLinks>(endpoint_, peers, options.longest_request);
  MemberOptions member = options.member;
  member.max_message = RpcLinks::max_message(endpoint_.options());
  member_ = open_member(env, *links_, state_, member);
  links_->connect_to(*member_);
  server_ = std::make_unique<KvServer>(env, *member_, state_, options.server);
  endpoint_.register_handler(kCommandRequest,
                             [this](const RequestHandle& handle) { take_command(handle); });
}

// The answer comes in a later turn of the member. A get and a put both go through the log.
void RpcMember::take_command(const RequestHandle& handle) {
  const Time came = endpoint_.recent();
  server_->submit(handle.request(), [this, kept = handle, came](const KvAnswer& answer) mutable {
    if (on_applied_ && answer.status == KvStatus::kDone) on_applied_(came, env_.now());
    const Bytes bytes = encode(answer);
    std::ranges::copy(bytes, kept.response(static_cast<std::uint32_t>(bytes.size())).begin());
    kept.respond();
  });
}

bool RpcMember::has_work() const {
  return links_->has_failures() || member_->next_turn() <= endpoint_.recent();
}

// The member's turn is outside the endpoint's. It comes after each turn of the loop that brings it
// work.
bool RpcMember::run_until(FunctionRef<bool()> done, Time deadline) {
  while (true) {
    const Time due = std::min(deadline, member_->next_turn());
    endpoint_.run_until([&] { return done() || has_work(); }, due);
    if (done()) return true;
    const Time now = env_.now();
    if (links_->has_failures()) links_->turn();
    if (member_->next_turn() <= now) {
      member_->turn(now);
      endpoint_.flush();
    }
    if (!member_->failure().empty()) [[unlikely]] {
      throw Error(ErrorCode::kUnavailable, "the Raft member of node " +
                                               std::to_string(env_.node()) +
                                               " has stopped: " + member_->failure())
          .blaming({env_.node()});
    }
    if (now >= deadline) return done();
  }
}

}  // namespace pyrdma::erpc::raft
