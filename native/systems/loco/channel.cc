#include "systems/loco/channel.h"

#include <algorithm>
#include <mutex>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/error.h"

namespace pyrdma::loco {

namespace {

std::vector<NodeId> everybody(const Manager& manager, std::vector<NodeId> given) {
  if (given.empty()) {
    for (NodeId node = 0; node < manager.nodes(); ++node) given.push_back(node);
  }
  std::sort(given.begin(), given.end());
  given.erase(std::unique(given.begin(), given.end()), given.end());
  return given;
}

}  // namespace

Channel::Channel(Manager& manager, std::string name, std::vector<NodeId> participants,
                 const Channel* parent)
    : manager_(manager),
      name_(std::move(name)),
      participants_(everybody(manager, std::move(participants))),
      participants_sum_(checksum(std::as_bytes(std::span(participants_)))),
      generation_(parent != nullptr ? parent->generation_
                                    : manager.made(name_, participants_sum_) + 1),
      peers_(manager.nodes()),
      problem_mutex_(manager.env()) {
  check_name();
  manager.check_free(name_);
  regions_.reserve(kMaxRegions);
  for (const NodeId node : participants_) {
    if (node >= manager.nodes()) {
      throw Error(ErrorCode::kInvalidArgument, "channel '" + name_ + "': participant " +
                                                   std::to_string(node) +
                                                   " is not a node; valid nodes are 0 to " +
                                                   std::to_string(manager.nodes() - 1));
    }
    peers_[node].takes_part = true;
  }
  if (!peers_[self()].takes_part) {
    throw Error(ErrorCode::kInvalidArgument,
                "channel '" + name_ + "' is made on node " + std::to_string(self()) +
                    ", which is not among its participants" + text_of(participants_));
  }
  awaited_.store(2 * static_cast<std::uint32_t>(participants_.size() - 1));
  if (participants_.size() < manager.nodes()) manager.env().reached("channel/subset");
}

Channel::Channel(Channel& parent, std::string_view name)
    : Channel(parent.manager_, parent.name_ + '/' + std::string(name), parent.participants_,
              &parent) {}

Channel::~Channel() { manager_.remove(*this); }

void Channel::check_name() const {
  if (name_.empty() || name_.size() > kMaxName || name_.find('.') != std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument,
                "channel name '" + name_ + "' has " + std::to_string(name_.size()) +
                    " bytes; it must have 1 to " + std::to_string(kMaxName) +
                    ", including the names of its parents, and no '.', which separates regions");
  }
}

const LocalRegion& Channel::add_region(std::string_view name, std::uint64_t bytes,
                                       std::uint32_t peers, Placement placement) {
  if (name.empty() || name.size() > kMaxRegionName || regions_.size() == kMaxRegions) {
    throw Error(ErrorCode::kInvalidArgument,
                "region '" + name_ + '.' + std::string(name) + "': a channel has at most " +
                    std::to_string(kMaxRegions) + " regions, with names of 1 to " +
                    std::to_string(kMaxRegionName) + " bytes");
  }
  const LocalRegion region =
      manager_.memory().allocate(bytes, fabric::kLocalWrite | peers, placement);
  return regions_.emplace_back(OwnRegion{std::string(name), region}).region;
}

std::uint32_t Channel::expect_region(std::string_view name, std::uint64_t bytes, NodeId from) {
  PYRDMA_CHECK(expectations_.size(), <, kMaxRegions);
  const auto index = static_cast<std::uint32_t>(expectations_.size());
  expectations_.push_back({std::string(name), bytes, from});
  if (const OwnRegion* own = find_region(name)) {
    peers_[self()].regions[index] = own->region.remote();
  }
  return index;
}

void Channel::join() {
  manager_.add(*this);
  for (const NodeId peer : participants_) {
    if (peer != self()) send_join(peer);
  }
}

std::uint32_t Channel::rank_of(NodeId node) const {
  const auto found = std::lower_bound(participants_.begin(), participants_.end(), node);
  PYRDMA_ASSERT(found != participants_.end() && *found == node);
  return static_cast<std::uint32_t>(found - participants_.begin());
}

ControlMessage Channel::message(ControlMessage::Kind kind) const {
  ControlMessage message;
  message.kind = kind;
  message.generation = generation_;
  message.participants = participants_sum_;
  copy_text(message.name, name_);
  return message;
}

void Channel::send_join(NodeId peer) {
  ControlMessage join = message(ControlMessage::kJoin);
  for (const Expectation& expected : expectations_) {
    if (expected.from != fabric::kNoNode && expected.from != peer) continue;
    RegionEntry& entry = join.entries[join.regions++];
    copy_text(entry.name, expected.name);
    entry.region.length = expected.bytes;
  }
  for (const Agreed& agreed : agreed_) {
    RegionEntry& entry = join.entries[join.regions + join.options++];
    copy_text(entry.name, agreed.option);
    entry.region.length = agreed.value;
  }
  manager_.control_->send(peer, join);
}

void Channel::handle(const ControlMessage& message) {
  if (!peers_[message.from].takes_part) {
    // Any other message than a join is an answer to an endpoint that is gone, as is a late join.
    if (message.kind != ControlMessage::kJoin ||
        message.generation <= manager_.made(name_, message.participants)) {
      return;
    }
    const std::string reason = "channel '" + name_ + "' has the participants" +
                               text_of(participants_) + " on node " + std::to_string(self()) +
                               ", but node " + std::to_string(message.from) +
                               " has the channel too: give the same participants on every node";
    refuse(message, reason, ControlMessage::kNotYet);
  } else if (message.generation != generation_ || message.participants != participants_sum_) {
    // An older message is meant for an endpoint that is gone. A newer one is a join message, and
    // this node has not made the endpoint that the peer wants. When it does, that endpoint's join
    // message makes the peer send its join again.
  } else if (message.kind == ControlMessage::kJoin) {
    handle_join(message);
  } else if (message.kind == ControlMessage::kConnect) {
    handle_connect(message);
  } else {
    report(message.from, message.reason, message.kind == ControlMessage::kNotYet);
  }
}

void Channel::handle_join(const ControlMessage& join) {
  for (std::uint32_t i = 0; i < join.regions; ++i) {
    const RegionEntry& expected = join.entries[i];
    const OwnRegion* own = find_region(expected.name);
    if (own != nullptr && own->region.bytes == expected.region.length) continue;
    const std::string reason =
        "node " + std::to_string(join.from) + " expects region '" + name_ + '.' + expected.name +
        "' of " + std::to_string(expected.region.length) + " bytes; node " +
        std::to_string(self()) +
        (own == nullptr ? " has no such region"
                        : " has it with " + std::to_string(own->region.bytes)) +
        ": make the channel with the same type and sizes on both";
    report(join.from, reason);
    return refuse(join, reason);
  }
  if (!agrees(join)) return;
  ControlMessage connect = message(ControlMessage::kConnect);
  for (const OwnRegion& own : regions_) {
    RegionEntry& entry = connect.entries[connect.regions++];
    copy_text(entry.name, own.name);
    entry.region = own.region.remote();
  }
  forget_passed(join.from);
  Peer& peer = peers_[join.from];
  const bool fresh = !peer.joined.exchange(true, std::memory_order_acq_rel);
  if (fresh)
    joined(join.from);  // before the answer: the peer may at once use channels that this call makes
  manager_.control_->send(join.from, connect);
  if (fresh) {
    // The peer may have had no endpoint when our join message arrived.
    if (!peer.connected.load(std::memory_order_acquire)) {
      manager_.env().reached("channel/join again");
      send_join(join.from);
    }
    awaited_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

bool Channel::agrees(const ControlMessage& join) {
  for (std::uint32_t i = join.regions; i < join.regions + join.options; ++i) {
    const RegionEntry& theirs = join.entries[i];
    const auto own = std::find_if(agreed_.begin(), agreed_.end(), [&](const Agreed& agreed) {
      return agreed.option == theirs.name;
    });
    if (own != agreed_.end() && own->value == theirs.region.length) continue;
    const std::string reason = "channel '" + name_ + "': " + theirs.name + " is " +
                               std::to_string(theirs.region.length) + " on node " +
                               std::to_string(join.from) + " and " +
                               (own == agreed_.end() ? "not known" : std::to_string(own->value)) +
                               " on node " + std::to_string(self()) + ": give the same on both";
    report(join.from, reason);
    refuse(join, reason);
    return false;
  }
  return true;
}

void Channel::handle_connect(const ControlMessage& connect) {
  Peer& peer = peers_[connect.from];
  if (peer.connected.load(std::memory_order_acquire)) return;
  for (std::size_t i = 0; i < expectations_.size(); ++i) {
    const Expectation& expected = expectations_[i];
    if (expected.from != fabric::kNoNode && expected.from != connect.from) continue;
    const auto* end = connect.entries.data() + connect.regions;
    const auto* found = std::find_if(connect.entries.data(), end, [&](const RegionEntry& entry) {
      return entry.name == expected.name;
    });
    if (found == end || found->region.length != expected.bytes) {
      return report(connect.from,
                    "node " + std::to_string(connect.from) + " connects channel '" + name_ +
                        "' without the region '" + expected.name + "' of " +
                        std::to_string(expected.bytes) + " bytes that node " +
                        std::to_string(self()) +
                        " expects: make the channel with the same type and sizes on both");
    }
    peer.regions[i] = found->region;
  }
  peer.connected.store(true, std::memory_order_release);
  connected(connect.from);
  awaited_.fetch_sub(1, std::memory_order_acq_rel);
}

// The refusal has the generation of the refused endpoint.
void Channel::refuse(const ControlMessage& refused, const std::string& reason,
                     ControlMessage::Kind kind) {
  ControlMessage refusal = message(kind);
  refusal.generation = refused.generation;
  refusal.participants = refused.participants;
  copy_text(refusal.reason, reason);
  manager_.control_->send(refused.from, refusal);
}

void Channel::report(NodeId peer, const std::string& problem, bool may_pass) {
  const std::lock_guard lock(problem_mutex_);
  if (!problem_.empty() && (may_pass || !problem_may_pass_)) return;
  problem_ = problem;
  problem_peer_ = peer;
  problem_may_pass_ = may_pass;
}

// The peer has made the endpoint.
void Channel::forget_passed(NodeId peer) {
  const std::lock_guard lock(problem_mutex_);
  if (problem_may_pass_ && problem_peer_ == peer) problem_.clear();
}

void Channel::check_problem(bool at_timeout) const {
  const std::lock_guard lock(problem_mutex_);
  if (problem_.empty() || (problem_may_pass_ && !at_timeout)) return;
  throw Error(ErrorCode::kInvalidArgument, problem_).blaming({problem_peer_});
}

void Channel::agree(std::string_view option, std::uint64_t value) {
  PYRDMA_CHECK(expectations_.size() + agreed_.size(), <, kMaxRegions);
  agreed_.push_back({std::string(option), value});
}

void Channel::assign(std::string_view role, NodeId node) {
  require_participant(role, node);
  agree(role, node);
}

void Channel::require_participant(std::string_view role, NodeId node) const {
  if (std::find(participants_.begin(), participants_.end(), node) != participants_.end()) return;
  throw Error(ErrorCode::kInvalidArgument, "channel '" + name_ + "': the " + std::string(role) +
                                               ", node " + std::to_string(node) +
                                               ", is not among its participants" +
                                               text_of(participants_));
}

std::vector<NodeId> Channel::missing() const {
  std::vector<NodeId> nodes;
  for (const NodeId node : participants_) {
    const Peer& peer = peers_[node];
    if (node != self() && !(peer.joined.load() && peer.connected.load())) {
      nodes.push_back(node);
    }
  }
  return nodes;
}

const Channel::OwnRegion* Channel::find_region(std::string_view name) const {
  const auto found = std::find_if(regions_.begin(), regions_.end(),
                                  [&](const OwnRegion& own) { return own.name == name; });
  return found == regions_.end() ? nullptr : &*found;
}

}  // namespace pyrdma::loco
