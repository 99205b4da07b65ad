// The end of a run, after all faults: every request has ended, credits are back, no session is left
// over, and every node can call every other. Safety alone would hide a loss.
#include <algorithm>

#include "base/error.h"
#include "fuzz/patience.h"
#include "systems/erpc/fuzz/node.h"

namespace pyrdma::erpc::scenario {
namespace {

constexpr Time kLook = 50 * kMicrosecond;  // between two looks at the other nodes

bool may_silence(FaultOptions faults) {
  for (const Fault fault : kHarmlessFaults) faults[fault].rate = 0;
  return faults.any();
}

}  // namespace

void Node::finish() {
  while (world_.cluster->faults_are_on()) serve([] { return false; }, env_.now() + kLook);
  world_.healed_at = std::min(world_.healed_at, world_.cluster->now());
  settle();
  if (!reach(Stage::kQuiet, "to be quiet")) return;
  settle();  // handlers that asked for a client that is gone
  check_sessions();
  if (!reach(Stage::kSettled, "to settle")) return;
  end_sessions();
  if (!reach(Stage::kEmpty, "to end all sessions")) return;
  call_everyone();
  reach(Stage::kDone, "to finish");
}

bool Node::reach(Stage stage, const char* what) {
  world_.stages[node_] = stage;
  fuzz::Patience patience(4 * world_.options.recovery_limit);
  while (!world_.all_at(stage)) {
    const fuzz::Outcome& sum = world_.outcome;
    if (patience.is_over(env_.now(), sum.begun + sum.ok + sum.fail + sum.info)) {
      world_.violation("liveness", "node " + std::to_string(node_) + " waited for all " + what);
      world_.stages[node_] = Stage::kDone;
      return false;
    }
    serve([] { return false; }, env_.now() + kLook);
  }
  return true;
}

// Many requests that are answered late may share one credit: then the last one takes long. Each
// that ends gives the others their time.
void Node::settle() {
  const auto is_settled = [this] { return under_way_ == 0 && owed_.empty(); };
  fuzz::Patience patience(world_.options.recovery_limit);
  while (!is_settled()) {
    if (patience.is_over(env_.now(), ended_)) {
      return world_.violation(
          "liveness", "node " + std::to_string(node_) + ": " + endpoint_->describe_pending());
    }
    serve(is_settled, env_.now() + kLook);
  }
}

// A check is counted where it is made: most need that something else did not happen.
void Node::check_sessions() {
  const std::string me = "node " + std::to_string(node_);
  const Counters& counters = endpoint_->counters();
  for (const auto& to_node : sessions_) {
    for (const auto& session : to_node) {
      if (session) env_.reached("erpc/checked/credits");
      if (!session || endpoint_->credits_of(*session) == world_.shape.options.credits) continue;
      world_.violation("credits", me + " has " + std::to_string(endpoint_->credits_of(*session)) +
                                      " of " + std::to_string(world_.shape.options.credits) +
                                      " credits of a session without requests");
    }
  }
  if (endpoint_->active_requests() != 0)
    world_.violation("liveness", me + " has active requests that nobody waits for");
  // Correct peers send no such packets, whatever the network does to them.
  env_.reached("erpc/checked/lies");
  if (counters.lies != 0)
    world_.violation("lies", me + " got " + std::to_string(counters.lies) + " wrong packets");
  if (world_.options.faults[Fault::corruption].rate == 0) {
    env_.reached("erpc/checked/malformed");
    if (endpoint_->packets().malformed != 0)
      world_.violation("lies", me + " got malformed packets");
  }
  // A buffer that is used again while the NIC reads it sends packets to wrong sessions.
  if (!world_.sessions_ended && !world_.cluster->branches().contains("erpc/session_lost")) {
    env_.reached("erpc/checked/wrong_session");
    if (counters.unknown_session != 0)
      world_.violation("wrong session", me + " got packets of sessions that never were");
  }
  if (world_.shape.is_calm && !may_silence(world_.options.faults) && !world_.endpoints_ended &&
      !world_.cluster->branches().contains("erpc/connect_refused")) {
    env_.reached("erpc/checked/false_death");
    if (counters.lost_sessions != 0)
      world_.violation("false death", me + " lost a session though no node was silent");
  }
}

void Node::end_sessions() {
  for (auto& to_node : sessions_) {
    for (auto& session : to_node) {
      if (session) endpoint_->destroy_session(*session);
      session.reset();
    }
  }
  env_.reached("erpc/checked/session_left");
  const Time deadline = env_.now() + world_.options.recovery_limit;
  while (endpoint_->server_sessions() != 0 || endpoint_->client_sessions() != 0) {
    if (env_.now() >= deadline) {
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
  const Time deadline = env_.now() + world_.options.recovery_limit;
  Planned op;
  op.request = 100;
  op.response = 200;
  for (op.target = 0; op.target < env_.nodes(); ++op.target) {
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
    env_.reached("erpc/checked/completeness");
    const std::uint32_t number = pending_.back()->call;
    serve([&] { return world_.calls[number].ended != 0; }, deadline);
    if (world_.calls[number].ended == 0 || world_.calls[number].outcome != Outcome::kOk)
      world_.violation("completeness", world_.name_of(number) + " fails after all faults");
  }
}

}  // namespace pyrdma::erpc::scenario
