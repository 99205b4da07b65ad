#include "systems/erpc/fuzz/node.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "systems/erpc/packet_header.h"

namespace pyrdma::erpc::scenario {
namespace {

constexpr std::uint32_t kMostUnderWay = 64;  // calls of a node
constexpr std::uint32_t kMostOfBurst = 40;
constexpr std::size_t kMostLost = 4;      // sessions that keep their receives
constexpr std::uint64_t kWiped = 0xdead;  // salt of what a client writes into its buffers

std::uint8_t type_of(Way way) { return static_cast<std::uint8_t>(static_cast<int>(way) + 1); }

}  // namespace

Node::Node(World& world, Env& env) : world_(world), env_(env), node_(env.node()) {
  open();
  world_.nodes[node_] = this;
}

void Node::open() {
  is_closing_ = false;
  while (endpoint_ == nullptr) {
    try {
      endpoint_ = std::make_unique<Endpoint>(env_, world_.shape.options, 0, world_.bugs);
    } catch (const Error& error) {
      if (!world_.is_without_memory(error)) throw;
      env_.sleep_until(env_.now() + 20 * kMicrosecond);
    }
  }
  lost_.clear();
  made_after_.clear();
  sessions_.assign(env_.nodes(), std::vector<std::optional<SessionId>>(world_.shape.sessions + 1));
  register_handlers();
}

void Node::close(bool says_so) {
  world_.endpoint_ended(node_);
  is_closing_ = true;
  endpoint_->close(says_so);
  endpoint_.reset();
  owed_.clear();
  for (const auto& pending : pending_) {
    if (!pending->has_ended)
      world_.violation("liveness", world_.name_of(pending->call) + " outlives its endpoint");
  }
  pending_.clear();
  under_way_ = 0;
}

// A destructor alone ends an endpoint as a crash would: no request gets an end. It comes while a
// worker runs a handler.
void Node::abandon() {
  Planned op;
  op.way = Way::kWorker;
  op.request = 100;
  const auto session = session_to(node_, 0);
  if (world_.shape.options.workers != 0 && session) begin(*session, node_, op);
  const Time deadline = env_.now() + 100 * kMicrosecond;
  while (working_ == 0 && env_.now() < deadline)
    serve([] { return false; }, env_.now() + kMicrosecond);
  drop();
}

void Node::drop() {
  world_.client_died(node_);
  is_closing_ = true;
  endpoint_.reset();
  owed_.clear();
  pending_.clear();
  under_way_ = 0;
  mark_.reset();
}

void Node::register_handlers() {
  const auto owed_for = [this](RequestHandle& handle, Way way) {
    const auto [salt, bytes] = world_.executes(node_, way, handle.request());
    return Owed{handle, salt, bytes, 0};
  };
  const auto at_once = [this, owed_for](RequestHandle& handle, Way way) {
    Owed owed = owed_for(handle, way);
    answer(owed);
  };
  endpoint_->register_handler(type_of(Way::kAtOnce),
                              [at_once](RequestHandle& handle) { at_once(handle, Way::kAtOnce); });
  if (world_.shape.options.workers != 0) {
    endpoint_->register_handler(
        type_of(Way::kWorker),
        [this, owed_for](RequestHandle& handle) {
          Owed owed = owed_for(handle, Way::kWorker);
          ++working_;
          const auto span = static_cast<Time>(owed.salt % (20 * kMicrosecond));
          if (owed.salt >> 63U == 0)
            env_.work(span);
          else
            env_.sleep_until(env_.now() + span);
          --working_;
          answer(owed);
        },
        RunIn::kWorker);
  }
  endpoint_->register_handler(type_of(Way::kLate), [this, owed_for](RequestHandle& handle) {
    owed_.push_back(owed_for(handle, Way::kLate));
    Owed& owed = owed_.back();
    // Often about a round trip, so that an answer and a retransmission meet.
    const Time longest =
        owed.salt % 8 == 0 ? world_.shape.latest : 3 * world_.shape.options.retransmission_timeout;
    owed.due =
        env_.now() + static_cast<Time>(mix64(owed.salt) % static_cast<std::uint64_t>(longest));
  });
  endpoint_->register_handler(type_of(Way::kNested), [this, owed_for](RequestHandle& handle) {
    Owed owed = owed_for(handle, Way::kNested);
    Planned onward;
    onward.target = static_cast<NodeId>(owed.salt % env_.nodes());
    onward.request = static_cast<std::uint32_t>(4 + mix64(owed.salt) % 500);
    onward.response = static_cast<std::uint32_t>(mix64(owed.salt + 1) % 2000);
    // A session of its own: requests that wait for one another must not share slots.
    const auto session = session_to(onward.target, world_.shape.sessions);
    if (!session || !begin(*session, onward.target, onward, owed)) answer(owed);
  });
}

void Node::answer(Owed& owed) {
  const std::span<std::byte> response = owed.handle.response(owed.bytes);
  fill(response, owed.salt);
  owed.handle.respond();
}

std::optional<SessionId> Node::session_to(NodeId target, std::uint32_t number) {
  std::optional<SessionId>& session = sessions_[target][number];
  if (session && endpoint_->is_lost(*session)) {
    world_.sessions_ended = true;
    check_loss(*session, target);
    if (world_.shape.keeps_lost && lost_.size() < kMostLost)
      lost_.push_back(*session);
    else
      endpoint_->destroy_session(*session);
    session.reset();
  }
  if (!session) {
    try {
      session = endpoint_->create_session({target, 0});
      made_after_[*session] = world_.endings[target];
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kExhausted) throw;
    }
  }
  return session;
}

bool Node::begin(SessionId session, NodeId server, const Planned& op, std::optional<Owed> owed) {
  // The node may be killed inside of any call of the endpoint, which then names the request.
  Pending* const pending = pending_.emplace_back(std::make_unique<Pending>()).get();
  pending->node = this;
  pending->session = session;
  pending->owed = owed;
  // Other nodes begin requests while this one waits for memory.
  pending->call = static_cast<std::uint32_t>(world_.calls.size());
  Call& call = world_.calls.emplace_back();
  call.client = node_;
  call.server = server;
  call.way = op.request < kNumbered && op.way != Way::kNobody ? Way::kAtOnce : op.way;
  call.request = op.request;
  call.response = op.request < kNumbered ? response_of_tiny(op.request) : op.response;
  pending->request = endpoint_->allocate(op.request);
  pending->response = endpoint_->allocate(op.is_short ? call.response / 2 : call.response);
  call.room = pending->response->capacity();
  const std::span<std::byte> bytes = pending->request->bytes();
  if (op.request < kNumbered) {
    fill(bytes, salt_of_request(0));
    world_.tiny_begun += call.way != Way::kNobody;
  } else {
    std::memcpy(bytes.data(), &pending->call, kNumbered);
    fill(bytes.subspan(kNumbered), salt_of_request(pending->call));
  }
  call.salt = checksum(bytes);
  try {
    endpoint_->enqueue_request({session, type_of(call.way), pending->request, pending->response,
                                &Node::end, pending, pending->call});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kExhausted) throw;
    endpoint_->free(pending->request);
    endpoint_->free(pending->response);
    call.ended = 1;
    call.outcome = Outcome::kNotSent;
    pending_.pop_back();
    return false;
  }
  ++under_way_;
  if (!owed) world_.calls[pending->call].mark = std::exchange(mark_, std::nullopt);
  return true;
}

void Node::end(void* context, std::uint64_t tag, Outcome outcome) {
  auto& pending = *static_cast<Pending*>(context);
  World& world = pending.node->world_;
  Call& call = world.calls[tag];
  if (tag != pending.call || ++call.ended != 1)
    world.violation("ended twice", world.name_of(pending.call));
  else
    pending.node->ended(pending, outcome);
}

void Node::ended(Pending& pending, Outcome outcome) {
  Call& call = world_.calls[pending.call];
  call.outcome = outcome;
  pending.has_ended = true;
  --under_way_;
  if (call.mark) world_.phase.ended(*call.mark);
  world_.progress();
  judge(pending, outcome);
  if (!is_closing_) check_counts();
  // The buffers are the client's again, which may use them for longer messages.
  if (pending.call % 2 == 0) pending.request->resize(pending.request->capacity());
  fill(pending.request->bytes(), kWiped);
  std::memset(pending.request->header(0), 0xff, kHeaderBytes);  // a NIC that reads it sends a lie
  fill(pending.response->bytes(), kWiped);
  pending.free_at = env_.now() + static_cast<Time>(mix64(pending.call) % 4 * 3 * kMicrosecond);
  if (!pending.owed || is_closing_) return;
  answer(*pending.owed);
}

void Node::judge(const Pending& pending, Outcome outcome) {
  const Call& call = world_.calls[pending.call];
  const auto wrong = [&](const std::string& what) {
    world_.violation("response", world_.name_of(pending.call) + " ended as '" + to_string(outcome) +
                                     "': " + what);
  };
  switch (outcome) {
    case Outcome::kOk:
      if (call.way == Way::kNobody) wrong("no handler was there");
      if (pending.response->size() != call.response)
        wrong("it has " + std::to_string(pending.response->size()) + " bytes");
      else if (!is_filled(pending.response->bytes(), call.salt))
        wrong("the bytes do not follow from the request");
      return;
    case Outcome::kResponseSize:
      if (call.response <= call.room) wrong("there was room");
      return;
    case Outcome::kNoHandler:
      if (call.way != Way::kNobody) wrong("there was a handler");
      return;
    case Outcome::kFailed:
      wrong("no handler fails");
      return;
    case Outcome::kNotSent:
    case Outcome::kSessionLost:
      if (!is_closing_ && !endpoint_->is_lost(pending.session)) wrong("the session is not lost");
      return;
  }
}

void Node::check_counts() {
  for (const auto& to_node : sessions_) {
    for (const auto& session : to_node) {
      if (!session || endpoint_->credits_of(*session) <= world_.shape.options.credits) continue;
      world_.violation("credits", "node " + std::to_string(node_) + " has " +
                                      std::to_string(endpoint_->credits_of(*session)) +
                                      " credits of " +
                                      std::to_string(world_.shape.options.credits));
    }
  }
  if (!endpoint_->credits_are_used())
    world_.violation("credits", "node " + std::to_string(node_) +
                                    " has a credit, and a request that waits for one");
  if (!endpoint_->wheel_counts_fit())
    world_.violation("wheel", "node " + std::to_string(node_) + " counts its packets wrong");
}

bool Node::serve(FunctionRef<bool()> ready, Time deadline) {
  while (true) {
    tend();
    Time due = deadline;
    for (const Owed& owed : owed_) due = std::min(due, owed.due);
    const std::size_t owed = owed_.size();
    endpoint_->run_until([&] { return ready() || owed_.size() > owed; }, due);
    if (ready()) return true;
    if (env_.now() >= deadline) return false;
  }
}

void Node::tend() {
  const Time now = env_.now();
  check_counts();
  for (std::size_t i = 0; i < owed_.size();) {
    if (owed_[i].due > now) {
      ++i;
      continue;
    }
    answer(owed_[i]);
    owed_.erase(owed_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  std::erase_if(pending_, [&](const std::unique_ptr<Pending>& pending) {
    if (!pending->has_ended || pending->free_at > now) return false;
    if (!is_filled(pending->request->bytes(), kWiped) ||
        !is_filled(pending->response->bytes(), kWiped)) {
      world_.violation("ownership", world_.name_of(pending->call) +
                                        ": a buffer has changed after the request's end");
    }
    endpoint_->free(pending->request);
    endpoint_->free(pending->response);
    return true;
  });
}

// A device without memory ends an endpoint, which is made again.
void Node::run() {
  while (true) {
    try {
      carry_out_plan();
      while (world_.cluster->faults_are_on()) serve([] { return false; }, env_.now() + kLook);
      break;
    } catch (const Error& error) {
      if (!world_.is_without_memory(error)) throw;
    }
    drop();
    open();
  }
  finish();
}

void Node::carry_out_plan() {
  const std::vector<Planned>& plan = world_.plans[node_];
  std::size_t& next = world_.next[node_];
  while (next < plan.size()) {
    const Planned& op = plan[next++];
    serve([] { return false; }, env_.now() + op.pause_ns);
    if (under_way_ >= kMostUnderWay) {
      serve([this] { return under_way_ < kMostUnderWay; },
            env_.now() + world_.shape.options.failure_timeout);
    }
    world_.progress();
    mark_ = world_.phase.operation();
    if (world_.options.keeps(op.id)) act(op);
    // Its first request has taken the mark, if it has any.
    if (mark_) world_.phase.ended(*mark_);
    mark_.reset();
  }
}

void Node::act(const Planned& op) {
  switch (op.act) {
    case Act::kCall:
      return call(op);
    case Act::kBurst:
      return burst(op);
    case Act::kRenew:
      return renew(op);
    case Act::kCrowd:
      return crowd(op);
    case Act::kReopen:
      return reopen(op);
  }
}

void Node::call(const Planned& op) {
  if (under_way_ >= 2 * kMostUnderWay) return;
  const auto session = session_to(op.target, op.session);
  if (session) begin(*session, op.target, op);
}

void Node::burst(const Planned& op) {
  Planned small = op;
  for (std::uint32_t i = 0; i < kMostOfBurst; ++i) {
    const auto session = session_to(op.target, op.session);
    small.request = 4 + op.request % 300;
    small.response = op.response % 300;
    if (!session || !begin(*session, op.target, small)) return;
  }
}

// The peer may still have the session when the next one is made, and packets of it are under way.
void Node::renew(const Planned& op) {
  Planned small = op;
  small.request = 4 + op.request % 100;
  small.response = op.response % 300;
  for (std::uint32_t round = 0; round <= op.draw % 4; ++round) {
    std::optional<SessionId>& session = sessions_[op.target][op.session];
    const auto is_unused = [&] {
      return std::ranges::none_of(pending_, [&](const auto& pending) {
        return !pending->has_ended && pending->session == *session;
      });
    };
    if (session) {
      if (!serve(is_unused, env_.now() + 30 * kMicrosecond)) return;
      world_.sessions_ended = true;
      endpoint_->destroy_session(*session);
      session.reset();
    }
    call(round == 0 ? op : small);
  }
}

void Node::crowd(const Planned& op) {
  std::vector<SessionId> crowd;
  try {
    for (std::uint32_t i = 0; i < 8; ++i)
      crowd.push_back(endpoint_->create_session({op.target, 0}));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kExhausted) throw;
  }
  world_.sessions_ended = true;
  serve([] { return false; }, env_.now() + op.draw % (50 * kMicrosecond));
  for (const SessionId session : crowd) endpoint_->destroy_session(session);
}

void Node::reopen(const Planned& op) {
  if (op.draw % 8 == 0)
    abandon();
  else
    close(op.draw % 4 != 0);
  open();
}

}  // namespace pyrdma::erpc::scenario
