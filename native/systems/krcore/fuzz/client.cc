#include "systems/krcore/fuzz/client.h"

#include <algorithm>
#include <string>

namespace pyrdma::krcore::scenario {

namespace {

constexpr std::uint64_t kWordsAt = 0, kMessagesAt = 4096;  // in a client's memory
constexpr std::uint32_t kWordPieces = 512, kMessagePieces = 40;
constexpr Time kResting = 2 * kAftermath;

}  // namespace

Pieces::Pieces(std::uint64_t at, std::uint32_t count, std::uint64_t bytes) {
  for (std::uint32_t i = count; i-- > 0;) free_.push_back(at + i * bytes);
}

std::optional<std::uint64_t> Pieces::take(Time now) {
  if (free_.empty() && !resting_.empty() && resting_.front().first + kResting <= now) {
    free_.push_back(resting_.front().second);
    resting_.pop_front();
  }
  if (free_.empty()) return std::nullopt;
  const std::uint64_t offset = free_.back();
  free_.pop_back();
  return offset;
}

Client::Client(World& world, Service& service, std::uint32_t number)
    : world_(world),
      service_(service),
      env_(service.env()),
      number_(number),
      app_(service),
      memory_(app_.reg_mr(kMessagesAt + std::uint64_t{kMessagePieces} * kMostMessage)),
      words_(kWordsAt, kWordPieces, 8),
      messages_(kMessagesAt, kMessagePieces, kMostMessage) {
  world_.nodes[env_.node()].keys.insert(memory_.key);
  // What the last life of this client has posted may still take effect.
  for (NodeId target = 0; target < world_.options.nodes; ++target) {
    for (Time& until : places_at(target).used_until)
      if (until == kForever) until = world_.now() + kResting;
  }
}

World::Places& Client::places_at(NodeId target) {
  const std::size_t own = std::size_t{env_.node()} * world_.shape.clients + number_;
  World::Places& places = world_.places[own * world_.options.nodes + target];
  const std::uint32_t life = world_.nodes[target].life;
  if (places.life != life) places = {life, 0, {}};
  return places;
}

void Client::run() {
  World::Node& self = world_.nodes[env_.node()];
  const std::vector<Planned>& plan = world_.plans[env_.node() * world_.shape.clients + number_];
  while (self.next[number_] < plan.size() && !world_.is_over) {
    const Planned& op = plan[self.next[number_]++];
    const bool is_late = world_.outcome.begun != 0 && !world_.cluster->faults_are_on();
    if (!is_late) env_.sleep_until(env_.now() + op.pause);
    mark_ = world_.phase.operation();
    ++world_.steps;
    if (world_.options.keeps(op.id)) act(op);
    end_operation(std::exchange(mark_, kUnknown));  // unless something of it is under way
  }
  finish_all();
  self.is_done[number_] = true;
  // Until nothing that has happened can end a request any more.
  const auto is_calm = [&] {
    return !world_.cluster->faults_are_on() &&
           !world_.may_fail(env_.node(), env_.node(), world_.now());
  };
  while (!world_.is_over && !is_calm()) env_.sleep_until(env_.now() + 100 * kMicrosecond);
  try_all();
  self.has_reached[number_] = !world_.is_over;
  while (!world_.is_over) env_.sleep_until(env_.now() + 200 * kMicrosecond);
}

// Those of the end checks have no mark.
void Client::end_operation(std::uint64_t mark) {
  if (mark != kUnknown) world_.phase.ended(mark);
}

void Client::act(const Planned& op) {
  if (op.act == Act::kLend) return lend(op);
  if (op.act == Act::kReturn) return give_back(op.draw);
  Link* link = link_to(op.target, op.lane, op.draw % 4 == 0);
  if (link == nullptr) {
    ++world_.outcome.fail;
    return;
  }
  switch (op.act) {
    case Act::kWrites:
      writes(*link, op.draw);
      break;
    case Act::kAdd:
      add_one(*link, op.draw);
      break;
    case Act::kShared:
      shared(*link, op.draw);
      break;
    case Act::kMessage:
      if (world_.shape.burst != 1) writes(*link, op.draw);
      for (std::uint32_t left = world_.shape.burst; left-- > 0;)
        message(*link, left == 0 ? op.size : left);
      break;
    case Act::kMalformed:
      malformed(*link, op.draw);
      break;
    case Act::kRenew:
      return renew(*link, op.draw);
    case Act::kMove:
      move(*link, op.draw);
      break;
    case Act::kUse:
      use(*link, op.draw);
      break;
    case Act::kBreak:
      break_under(*link, op.draw);
      break;
    default:
      wait(*link, 0);
  }
  wait(*link, world_.shape.depth);
  if (!link->has_failed) return;
  wait(*link, 0);
  drop(*link);
}

void Client::finish_all() {
  std::vector<Name> names;
  for (const auto& [name, link] : links_) names.push_back(name);
  for (const Name& name : names) {
    Link& link = links_.at(name);
    wait(link, 0);
    if (link.has_failed) drop(link);
  }
}

// All is well now: each connection goes on, unless its peer has begun another life, and each node
// can be reached.
void Client::try_all() {
  finish_all();
  try_stale();
  std::vector<Name> names;
  for (const auto& [name, link] : links_) names.push_back(name);
  for (const Name& name : names) {
    Link& link = links_.at(name);
    if (link.life != world_.nodes[link.target].life) continue;
    writes(link, 3);
    shared(link, 0);
    message(link, 10);
    wait(link, 0);
    if (!link.has_failed) world_.outcome.made("connections last");
    try_ended_loan(link);
    try_old_key(link, 1);
    wait(link, 0);
    drop(link);
  }
  // Others have died since, or a meta server has.
  if (number_ == 0 && world_.shape.clears_caches) service_.clear_caches();
  for (NodeId target = 0; target < world_.options.nodes; ++target) {
    while (!world_.is_over && !reaches(target)) env_.sleep_until(env_.now() + 300 * kMicrosecond);
  }
  look_at_heirs();
}

void Client::try_stale() {
  std::vector<Name> stale;
  for (const auto& [name, link] : links_)
    if (link.life < world_.nodes[link.target].life) stale.push_back(name);
  for (const Name& name : stale) {
    Link& link = links_.at(name);
    writes(link, 3);
    wait(link, 0);
    drop(link);
  }
}

bool Client::reaches(NodeId target) {
  Link* link = link_to(target, 0);
  if (link == nullptr) return false;
  shared(*link, 1);
  wait(*link, 0);
  const bool has_worked = !link->has_failed;
  if (!has_worked) drop(*link);
  return has_worked;
}

// `may_be_stale`: also one to a life of the node that has ended.
Client::Link* Client::link_to(NodeId target, std::uint32_t lane, bool may_be_stale) {
  const World::Node& peer = world_.nodes[target];
  if (const auto known = links_.find({target, lane}); known != links_.end()) {
    if (known->second.life == peer.life || may_be_stale) return &known->second;
    drop(known->second);
  }
  if (!peer.is_up) return nullptr;
  VqpOptions options;
  options.send_entries = world_.shape.queue_entries;
  Link& link = links_[{target, lane}];
  link.queue = app_.create_queue(options);
  link.target = target;
  link.lane = lane;
  if (begin(link)) return &link;
  app_.destroy(link.queue);
  links_.erase({target, lane});
  return nullptr;
}

// Connects the queue pair, with a place of its own at the target.
bool Client::begin(Link& link) {
  const World::Node& peer = world_.nodes[link.target];
  World::Places& places = places_at(link.target);
  const std::uint32_t place = places.next % kPlaces;
  if (!peer.is_up || places.used_until[place] > world_.now()) return false;
  link.made = link.alive = world_.now();
  link.life = peer.life;
  link.is_sure = world_.knows(env_.node(), link.target);
  const ConnectResult result = service_.connect(link.queue, link.target, kPort);
  if (result != ConnectResult::kConnected) {
    const auto may_fail = [&](NodeId node) {
      return world_.may_fail(env_.node(), node, link.made) || !world_.knows(env_.node(), node);
    };
    if (!may_fail(link.target) &&
        std::ranges::none_of(world_.shape.service.meta_servers, may_fail)) {
      world_.violation("connect", "node " + std::to_string(env_.node()) +
                                      " could not connect to node " + std::to_string(link.target) +
                                      ": " + std::to_string(static_cast<int>(result)));
    }
    return false;
  }
  if (link.life != peer.life) return false;  // it is not known to which life
  link.stream = world_.next_stream++;
  world_.streams[link.stream] = {env_.node(), link.target, link.life, 0, 0, 0};
  const std::size_t own = std::size_t{env_.node()} * world_.shape.clients + number_;
  link.place = static_cast<std::uint32_t>(own * kPlaces + place) * kWords;
  std::ranges::fill(link.words, places.next < kPlaces ? 0 : kUnknown);
  ++places.next;
  places.used_until[place] = kForever;
  link.has_failed = link.has_failed_request = false;
  return true;
}

// What is under way may still take effect.
void Client::end_connection(Link& link) {
  for (const Posted& posted : link.open) {
    if (posted.is_last) end_operation(posted.mark);
    (posted.kind == Posted::Kind::kMessage ? messages_ : words_)
        .give_later(posted.piece, world_.now());
  }
  link.open.clear();
  World::Places& places = places_at(link.target);
  if (places.life == link.life)
    places.used_until[link.place / kWords % kPlaces] = world_.now() + kResting;
}

void Client::drop(Link& link) {
  end_connection(link);
  app_.destroy(link.queue);
  links_.erase(Name(link.target, link.lane));
}

// A transfer may follow one whose last answers are on their way.
void Client::move(Link& link, std::uint64_t draw) {
  for (std::uint64_t left = draw % 4;; --left) {
    service_.start_transfer(link.queue,
                            static_cast<std::uint32_t>((draw >> 8 * left) / 4 % service_.pools()));
    if (left == 0 || link.has_failed) return;
    message(link, 10);
    wait(link, 0);
  }
}

void Client::renew(Link& link, std::uint64_t draw) {
  if (draw / 4 % 2 == 0) return drop(link);
  // The answer to a long message may come when the next connection has announced one.
  const bool announces = draw / 8 % 2 == 0;
  if (announces) {
    message(link, kMostMessage - 64);
    env_.sleep_until(env_.now() + static_cast<Time>(draw >> 32 & 0x3fff));
  }
  end_connection(link);
  service_.reset(link.queue);
  if (begin(link)) {
    if (announces) message(link, kMostMessage - 64);
    return;
  }
  app_.destroy(link.queue);
  links_.erase(Name(link.target, link.lane));
}

}  // namespace pyrdma::krcore::scenario
