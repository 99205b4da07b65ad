// The end of a run, after all faults: every request has ended, credits are back, no session is left
// over, and every node can call every other. Safety alone would hide a loss.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "fuzz/patience.h"
#include "systems/erpc/fuzz/node.h"

namespace pyrdma::erpc::scenario {
namespace {

bool may_silence(FaultOptions faults) {
  for (const Fault fault : kHarmlessFaults) faults[fault].rate = 0;
  return faults.any();
}

}  // namespace

// A request, and the end of a session whose peer is silent, take a few of these timeouts. Whatever
// goes on anywhere gives everybody this time again.
Time Node::patience() const {
  return world_.options.recovery_limit + 4 * world_.shape.options.failure_timeout;
}

void Node::finish() {
  world_.healed_at = std::min(world_.healed_at, world_.cluster->now());
  settle();
  if (!reach(Stage::kQuiet, "to be quiet")) return;
  settle();  // handlers that asked for a client that is gone
  check_sessions();
  check_order();
  check_halves();
  if (!reach(Stage::kSettled, "to settle")) return;
  end_sessions();
  if (!reach(Stage::kEmpty, "to end all sessions")) return;
  call_everyone();
  reach(Stage::kDone, "to finish");
}

bool Node::reach(Stage stage, const char* what) {
  world_.stages[node_] = stage;
  world_.progress();
  fuzz::Patience patience(2 * this->patience());
  while (!world_.all_at(stage)) {
    if (patience.is_over(env_.now(), world_.steps)) {
      world_.violation("liveness", "node " + std::to_string(node_) + " waited for all " + what);
      world_.stages[node_] = Stage::kDone;
      return false;
    }
    serve([] { return false; }, env_.now() + kLook);
  }
  return true;
}

// Many requests that are answered late may share one credit, or one server: then the last one takes
// long. Each that ends gives all others their time.
void Node::settle() {
  const auto is_settled = [this] { return under_way_ == 0 && owed_.empty(); };
  fuzz::Patience patience(this->patience());
  while (!is_settled()) {
    if (patience.is_over(env_.now(), world_.steps)) {
      return world_.violation(
          "liveness", "node " + std::to_string(node_) + ": " + endpoint_->describe_pending());
    }
    serve(is_settled, env_.now() + kLook);
  }
}

// A check is counted where it is made: some need that something else did not happen.
void Node::check_sessions() {
  const std::string me = "node " + std::to_string(node_);
  const Counters& counters = endpoint_->counters();
  fuzz::Outcome& outcome = world_.outcome;
  outcome.skipped("credits", "no session is left");
  for (const auto& to_node : sessions_) {
    for (const auto& session : to_node) {
      if (session) outcome.made("credits");
      if (!session || endpoint_->credits_of(*session) == world_.shape.options.credits) continue;
      world_.violation("credits", me + " has " + std::to_string(endpoint_->credits_of(*session)) +
                                      " of " + std::to_string(world_.shape.options.credits) +
                                      " credits of a session without requests");
    }
  }
  if (endpoint_->active_requests() != 0)
    world_.violation("liveness", me + " has active requests that nobody waits for");
  // Correct peers send no such packets, whatever the network does to them.
  outcome.made("lies");
  if (counters.lies != 0)
    world_.violation("lies", me + " got " + std::to_string(counters.lies) + " wrong packets");
  if (world_.cluster->fault_counters().reached[static_cast<std::size_t>(Fault::corruption)] == 0) {
    outcome.made("malformed");
    if (endpoint_->packets().malformed != 0 || endpoint_->packets().bad_checksum != 0)
      world_.violation("lies", me + " got malformed packets");
  } else {
    outcome.skipped("malformed", "bits of packets flipped");
  }
  // A buffer that is used again while the NIC reads it sends packets to wrong sessions.
  if (!world_.sessions_ended && !world_.cluster->branches().contains("erpc/session_lost")) {
    outcome.made("wrong session");
    if (counters.unknown_session != 0)
      world_.violation("wrong session", me + " got packets of sessions that never were");
  } else {
    outcome.skipped("wrong session", "a session has ended");
  }
  if (!world_.shape.is_calm)
    return outcome.skipped("false death", "timeouts may be shorter than round trips");
  if (!knows_losses())
    return outcome.skipped("false death", "nodes are silent, or refuse sessions");
  outcome.made("false death");
  if (counters.lost_sessions != 0 && !world_.endpoints_ended)
    world_.violation("false death", me + " lost a session though no node was silent");
  for (NodeId target = 0; target < env_.nodes(); ++target) {
    for (const auto& session : sessions_[target]) {
      if (session && endpoint_->is_lost(*session)) check_loss(*session, target);
    }
  }
}

// Nothing but the end of an endpoint costs a session.
bool Node::knows_losses() const {
  return world_.shape.is_calm && !may_silence(world_.options.faults) &&
         !world_.cluster->branches().contains("erpc/connect_refused");
}

void Node::check_loss(SessionId session, NodeId target) const {
  if (knows_losses() && made_after_.at(session) == world_.endings[target])
    world_.violation("false death", "node " + std::to_string(node_) + " lost a session to node " +
                                        std::to_string(target) + ", whose endpoint lives");
}

// Packets of a session that wait for their time, and those behind them, keep their order.
void Node::check_order() {
  if (!world_.packets_came_in_order())
    return world_.outcome.skipped("order", "a fault has disturbed the packets");
  world_.outcome.made("order");
  if (endpoint_->counters().reordered != 0)
    world_.violation("order", "node " + std::to_string(node_) + " got " +
                                  std::to_string(endpoint_->counters().reordered) +
                                  " packets too early, though the network kept their order");
}

std::uint32_t Node::connected_sessions() const {
  std::uint32_t count = 0;
  for (const auto& to_node : sessions_) {
    count += static_cast<std::uint32_t>(std::ranges::count_if(
        to_node, [&](const auto& each) { return each && endpoint_->is_connected(*each); }));
  }
  return count;
}

// Each half of a session has its other half, or ends. A client that keeps a lost session says so.
void Node::check_halves() {
  const auto surplus = [this] {
    std::uint32_t connected = 0, served = 0;
    for (const Node* each : world_.nodes) {
      if (each == nullptr) continue;
      connected += each->connected_sessions();
      served += each->server_sessions();
    }
    return served > connected ? served - connected : 0;
  };
  world_.outcome.made("halves");
  fuzz::Patience patience(this->patience());
  while (surplus() != 0) {
    if (patience.is_over(env_.now(), surplus()))
      return world_.violation("halves", std::to_string(surplus()) +
                                            " sessions of servers outlive those of the clients");
    serve([] { return false; }, env_.now() + kLook);
  }
}

void Node::end_sessions() {
  for (auto& to_node : sessions_) {
    for (auto& session : to_node) {
      if (session) endpoint_->destroy_session(*session);
      session.reset();
    }
  }
  for (const SessionId session : std::exchange(lost_, {})) endpoint_->destroy_session(session);
  world_.outcome.made("session left");
  fuzz::Patience patience(this->patience());
  const auto left = [this] {
    return endpoint_->server_sessions() + endpoint_->client_sessions() + endpoint_->kept_sessions();
  };
  while (left() != 0) {
    if (patience.is_over(env_.now(), left())) {
      return world_.violation("session left", "node " + std::to_string(node_) + " has " +
                                                  std::to_string(endpoint_->server_sessions()) +
                                                  " sessions of clients that have none, and " +
                                                  std::to_string(endpoint_->client_sessions()) +
                                                  " of its own");
    }
    serve([] { return false; }, env_.now() + kLook);
  }
}

void Node::call_everyone() {
  Planned op;
  op.request = 100;
  op.response = 200;
  for (op.target = 0; op.target < env_.nodes(); ++op.target) {
    const Time deadline = env_.now() + patience();
    std::optional<SessionId> session;
    const auto is_connected = [&] {
      session = session_to(op.target, 0);
      return session && endpoint_->is_connected(*session);
    };
    serve(is_connected, deadline);
    if (!session || !begin(*session, op.target, op)) {
      world_.violation("completeness", "node " + std::to_string(node_) +
                                           " has no session for node " + std::to_string(op.target));
      continue;
    }
    world_.outcome.made("completeness");
    const std::uint32_t number = pending_.back()->call;
    serve([&] { return world_.calls[number].ended != 0; }, deadline);
    if (world_.calls[number].ended == 0 || world_.calls[number].outcome != Outcome::kOk)
      world_.violation("completeness", world_.name_of(number) + " fails after all faults");
  }
}

}  // namespace pyrdma::erpc::scenario
