#include "systems/loco/fuzz/node.h"

#include <algorithm>

#include "base/error.h"
#include "base/held_flag.h"
#include "base/remote_word.h"
#include "systems/loco/fuzz/meeting.h"
#include "systems/loco/fuzz/presets.h"

namespace pyrdma::loco::scenario {
namespace {

using check::EventType;
using check::Function;
using check::Value;

ManagerOptions manager_options(const World& world, const Shape& shape) {
  ManagerOptions options;
  if (shape.polling_thread) options.polling = Polling::kThread;
  options.callers = kOutsider + 1 + uses_store(world);  // the last is the tracker's
  options.max_in_flight = 64;
  options.blocks = 32;
  options.wait_timeout = 100 * kMillisecond;  // a slow node takes long to set itself up
  options.bugs = world.bugs;
  return options;
}

// Locks change nodes often.
TicketLockOptions lock_options(const World& world, const Shape& shape) {
  const bool paper = world.options.seed % 2 == 0;
  auto options =
      TicketLockOptions::of(preset_of(world.options, paper ? Preset::kPaper : Preset::kBest));
  options.max_handovers = kMostHandovers;
  if (shape.device_words)
    options.placement = Placement::kDevice;  // its words begin with 0
  else
    options.first_ticket = shape.first.lock_ticket;
  return options;
}

}  // namespace

Wide wide(NodeId writer, std::uint64_t number) {
  Wide value;
  value.words[0] = number;
  for (std::size_t i = 1; i < value.words.size(); ++i) {
    value.words[i] = number == 0 ? 0 : mix64(number * 64 + writer * 16 + i);
  }
  return value;
}

Node::Node(World& world, Env& env)
    : world_(world),
      env_(env),
      shape_(world),
      owners_(std::min(env.nodes(), 4U)),
      manager_(env, manager_options(world, shape_)),
      words_(manager_, "words", kWords),
      records_(manager_, "records", kLocks * kRecordWords * 8, kReadWrite),
      marks_(manager_, "marks", std::uint64_t{env.nodes()} * kCallers * 8, fabric::kRemoteWrite),
      barrier_(manager_, "barrier", {}, shape_.first.barrier_round) {
  for (NodeId owner = 0; owner < owners_; ++owner) {
    const std::string number = std::to_string(owner);
    pushed_.push_back(
        std::make_unique<OwnedVar<Wide>>(manager_, "pushed" + number, owner, Updates::kPushed));
    halves_.push_back(std::make_unique<OwnedVar<std::uint64_t>>(manager_, "halves" + number, owner,
                                                                Updates::kPushed));
    pulled_.push_back(
        std::make_unique<OwnedVar<Wide>>(manager_, "pulled" + number, owner, Updates::kPulled));
  }
  rings_.push_back(std::make_unique<RingBuffer>(manager_, "ring0", 0, kRingBytes,
                                                std::vector<NodeId>(), shape_.first.position));
  if (std::ranges::find(shape_.members, env.node()) != shape_.members.end()) {
    queue_ = std::make_unique<SharedQueueOf<std::uint64_t>>(
        manager_, "queue", kQueueCapacity, shape_.members, shape_.first.queue_ticket);
    locks_ = std::make_unique<TicketLocks>(manager_, "locks", kLocks + 1,
                                           lock_options(world, shape_), shape_.members);
    rings_.push_back(std::make_unique<RingBuffer>(manager_, "ring1", shape_.members.back(),
                                                  kRingBytes, shape_.members,
                                                  shape_.first.position));
  }
  if (uses_store(world)) {
    KvOptions options;
    options.slots = shape_.slots;
    options.value_bytes = sizeof(Wide);
    options.locks = kKeyLocks;
    options.lock = lock_options(world, shape_);
    options.tracker_bytes = 128;
    options.first_counter = shape_.first.slot_counter;
    options.first_position = shape_.first.position;
    options.tracker_pause = 5 * kMicrosecond;
    options.tracker_hold = 200 * kMicrosecond;
    store_ = std::make_unique<KvStore>(manager_, "store", options);
  }
  for (std::uint32_t caller = 0; caller < kCallers; ++caller) {
    plans_[caller] = draw_plan(world, env.node(), caller);
    seen_[caller].resize(env.nodes());
  }
}

void Node::run() {
  // Not in the constructor: a node that fails here still answers the others.
  manager_.wait_for_ready();
  world_.usable[env_.node()] = true;
  for (std::uint32_t epoch = 0; epoch < kEpochs; ++epoch) {
    std::optional<Error> failure;
    {
      const auto second = env_.spawn("second", [&] {
        try {
          run_epoch(epoch, 1);
        } catch (const Error& error) {
          failure = error;
        }
      });
      run_epoch(epoch, 0);
    }
    if (failure) throw *failure;
    meet(epoch + 1);
    make_again(epoch);
  }
  finish();
}

void Node::leave() {
  manager_.leave();
  ++world_.left;
}

void Node::go_on_until(FunctionRef<bool()> ready) {
  constexpr std::uint32_t kMostErrors = 8;
  while (!ready()) {
    for (std::uint32_t caller = 0; caller <= kOutsider; ++caller) {
      try {
        if (errors_ < kMostErrors) manager_.turn(manager_.caller(caller));
      } catch (const Error& error) {
        ++errors_;  // a thread of the runtime that has failed has an error for each turn
        world_.fates.failed(env_.node(), error);
      }
    }
    env_.sleep_until(env_.now() + 100 * kMicrosecond);
  }
}

void Node::run_epoch(std::uint32_t epoch, std::uint32_t caller) {
  Caller& me = manager_.caller(caller);
  const std::vector<Planned>& plan = plans_[caller];
  for (std::size_t i = plan.size() * epoch / kEpochs; i < plan.size() * (epoch + 1) / kEpochs;
       ++i) {
    const std::uint64_t mark = world_.operation();
    if (world_.options.keeps(plan[i].id)) {
      if (plan[i].pause_ns != 0) env_.sleep_until(env_.now() + plan[i].pause_ns);
      act(me, plan[i]);
      manager_.turn();
    }
    world_.phase.ended(mark);
  }
  me.wait_until([&] { return !me.has_unfinished(); }, "end of dropped operations");
  // A mark for every node; after the barrier every node must see it.
  for (NodeId peer = 0; peer < env_.nodes(); ++peer) {
    auto block = me.block(8);
    *block.as<std::uint64_t>() = epoch + 1;
    auto key = marks_.write(me, peer, 8 * static_cast<std::uint64_t>(process(me)), block.sge(8));
    key.keep(std::move(block));
  }
}

// L5: no node leaves before all have entered, and earlier writes are visible.
void Node::meet(std::uint64_t epoch) {
  const auto who = static_cast<std::int32_t>(env_.node());
  const Value round = Value::pair(static_cast<std::int64_t>(epoch), env_.nodes());
  check::History& log = world_.log(Log::kBarriers);
  log.invoke(env_.now(), who, Function::kBarrier, {}, round);
  meet_at(barrier_, manager_.caller(0), world_.outcome);
  log.complete(env_.now(), who, EventType::kOk, Function::kBarrier, {}, round);
  const auto* marks = reinterpret_cast<const std::uint64_t*>(marks_.local());
  for (std::uint32_t client = 0; client < env_.nodes() * kCallers; ++client) {
    const std::uint64_t mark = load_acquire(marks + client);
    if (mark < epoch) {
      world_.violation("barrier", "node " + std::to_string(env_.node()) + " left barrier " +
                                      std::to_string(epoch) + " and finds mark " +
                                      std::to_string(mark) + " of client " +
                                      std::to_string(client));
    }
  }
}

void Node::act(Caller& me, const Planned& op) {
  const NodeId self = env_.node(), owner = op.object % owners_;
  const bool first = me.index() == 0;  // pulls and rings have one writer, and here one reader
  const auto ring = static_cast<std::uint32_t>(op.object % rings_.size());
  const bool writes = first && rings_[ring]->writer() == self;
  const bool for_members =
      op.act == Act::kEnqueue || op.act == Act::kDequeue || op.act == Act::kCritical;
  if (for_members && !is_member()) return add(me, op);
  switch (op.act) {
    case Act::kPush:
      if (self >= owners_ || pushing_.load()) return look(me, owner, false);
      return push(me);
    case Act::kLook:
      return look(me, owner, false);
    case Act::kStore:
      if (first && self < owners_) return store_often(op);
      return look(me, owner, true);
    case Act::kPull:
      if (!first) look(me, owner, true);
      return;
    case Act::kAdd:
      return add(me, op);
    case Act::kEnqueue:
      return shape_.blocking_queue ? exchange(me, op) : enqueue(me, op);
    case Act::kDequeue:
      return shape_.blocking_queue ? exchange(me, op) : dequeue(me);
    case Act::kBroadcast:
    case Act::kReceive:
      if (writes) return broadcast(me, ring);
      if (first) receive(me, ring, op);
      return;
    case Act::kLookup:
      return lookup(me, op);
    case Act::kChange:
      return change(me, op);
    case Act::kCritical:
    case Act::kCount:
      return critical(me, op);
  }
}

// Both clients push, one at a time: the pushes of one must not overtake those of the other.
void Node::push(Caller& me) {
  pushing_ = true;
  const HeldFlag pushing(&pushing_);
  const NodeId self = env_.node();
  pushed_[self]->store(wide(self, ++world_.pushed[self]));
  pushed_[self]->push(me);
  world_.placed[self] = world_.pushed[self];
  halves_[self]->store(world_.pushed[self] << 32 | world_.pushed[self]);
  halves_[self]->push(me);
}

// Several stores in a row meet more pulls.
void Node::store_often(const Planned& op) {
  for (std::uint32_t i = 0; i <= op.draw % 16; ++i) {
    pulled_[env_.node()]->store(wide(env_.node(), ++world_.pulled[env_.node()]));
    env_.sleep_until(env_.now() + 100);
  }
}

// A copy is a value that its owner has stored, and it is not older than the last value that this
// client saw.
void Node::look(Caller& me, NodeId owner, bool pull) {
  if (pull && owner == env_.node()) return;
  env_.now();
  std::uint64_t& last = seen_[me.index()][owner];
  std::uint64_t least = pull ? world_.pulled[owner] : last;
  std::optional<Wide> value;
  if (pull) {
    const auto [status, found] = pulled_[owner]->pull(me);
    require(status, owner, "a pull");
    value = found;
  } else {
    const std::uint64_t word = *halves_[owner]->try_load();
    if (word >> 32 != (word & 0xffffffff))
      world_.violation("variable", "the halves of a word are " + std::to_string(word >> 32) +
                                       " and " + std::to_string(word & 0xffffffff));
    value = pushed_[owner]->try_load();
  }
  if (!value) return;
  const std::uint64_t number = value->words[0];
  const std::uint64_t most = (pull ? world_.pulled : world_.pushed)[owner];
  if (number < least || number > most || value->words != wide(owner, number).words) {
    world_.violation("variable", "client " + std::to_string(process(me)) + " finds number " +
                                     std::to_string(number) + " of node " + std::to_string(owner) +
                                     "; possible are " + std::to_string(least) + " to " +
                                     std::to_string(most) + ", whole");
  }
  if (!pull) last = number;
}

void Node::add(Caller& me, const Planned& op) {
  check::History& log = world_.log(Log::kWords);
  const std::uint64_t word = op.object % kWords;
  const Value key = Value::integer(static_cast<std::int64_t>(word));
  const std::int64_t addend = 1 + op.draw % 3;
  world_.sums[word] += static_cast<std::uint64_t>(addend);
  log.invoke(env_.now(), process(me), Function::kFetchAdd, key, Value::integer(addend));
  const std::uint64_t old = words_.fetch_add(me, word, static_cast<std::uint64_t>(addend));
  log.complete(env_.now(), process(me), EventType::kOk, Function::kFetchAdd, key,
               Value::integer(static_cast<std::int64_t>(old)));
  ++world_.outcome.ok;
}

std::int32_t Node::process(const Caller& me) const {
  return static_cast<std::int32_t>(env_.node() * kCallers + me.index());
}

void Node::require(AckKey& key, NodeId peer, const char* what) {
  const fabric::Status status = key.wait();
  if (status != fabric::Status::kSuccess && key.failed_peer() != peer)
    world_.violation("blame", "the key of requests to node " + std::to_string(peer) + " blames " +
                                  std::to_string(key.failed_peer()));
  require(status, peer, what);
}

void Node::require(fabric::Status status, NodeId peer, const char* what) {
  if (status == fabric::Status::kSuccess) return;
  throw Error(ErrorCode::kUnavailable,
              std::string(what) + " from node " + std::to_string(peer) + ": " + to_string(status),
              false)
      .blaming({peer});
}

}  // namespace pyrdma::loco::scenario
