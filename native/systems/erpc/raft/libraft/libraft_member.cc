// The life of a member: options, the begin of a group, start, stop, and what observers see.
#include "systems/erpc/raft/libraft/libraft_member.h"

#include <algorithm>

#ifdef PYRDMA_LIBRAFT

#include "base/error.h"

namespace pyrdma::erpc::raft {

std::unique_ptr<Member> open_member(Env& env, Links& links, StateMachine& state,
                                    const MemberOptions& options) {
  return std::make_unique<LibraftMember>(env, links, state, options);
}

LibraftMember::LibraftMember(Env& env, Links& links, StateMachine& state,
                             const MemberOptions& options)
    : env_(env),
      links_(links),
      state_(state),
      options_(options),
      random_(env.rng("erpc/raft/" + std::to_string(env.incarnation()))),
      store_(env, options.durability, options.bugs),
      address_(address_of(std::uint64_t{env.node()} + 1)) {
  check_options();
  now_ = env.now();
  store_.load();
  // The library names only what changes. A vote without a new term is one for the stored term.
  if (options_.bugs.knows_term_at_start()) term_to_store_ = store_.term();
  vote_to_store_ = store_.vote();
  if (store_.fresh() && !options_.group.empty()) begin_group();
  for (std::uint64_t i = store_.first_index(); i <= store_.last_index(); ++i) {
    if (options_.durability == Durability::kDisk) loaded_.push_back(store_.read(i));
  }
  if (options_.observer != nullptr) {
    std::vector<EntryMark> marks;
    for (std::size_t i = 0; i < loaded_.size(); ++i)
      marks.push_back({store_.first_index() + i, loaded_[i].term,
                       StableStore::digest_of(loaded_[i].type, loaded_[i].payload)});
    const auto& snapshot = store_.snapshot();
    options_.observer->started(env_.node(), store_.term(), store_.vote(),
                               snapshot ? snapshot->index : 0, snapshot ? snapshot->term : 0,
                               marks);
  }
  start();
}

LibraftMember::~LibraftMember() { stop(); }

void LibraftMember::check_options() const {
  const MemberOptions& o = options_;
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, "raft: " + what);
  };
  if (o.unit < 1) refuse("unit is " + std::to_string(o.unit) + " ns; give at least 1");
  if (o.heartbeat < o.unit || o.election_timeout < 2 * o.heartbeat)
    refuse("heartbeat is " + std::to_string(o.heartbeat) + " ns and election_timeout " +
           std::to_string(o.election_timeout) +
           " ns; give a heartbeat of at least one unit and an election_timeout of at least two "
           "heartbeats");
  if (o.election_timeout / o.unit > 1'000'000 || o.snapshot_timeout / o.unit > 1'000'000)
    refuse("a timeout is longer than 1,000,000 units; give a longer unit");
  if (o.snapshot_threshold < 1 || o.snapshot_trailing < 1)
    refuse("snapshot_threshold and snapshot_trailing must be at least 1");
  if (o.max_message < 2 * kMaxPayload)
    refuse("max_message is " + std::to_string(o.max_message) + "; give at least " +
           std::to_string(2 * kMaxPayload));
  if (o.group.size() > kMaxServers)
    refuse("group has " + std::to_string(o.group.size()) + " members; give at most " +
           std::to_string(kMaxServers));
  if (!o.group.empty() && std::ranges::find(o.group, env_.node()) == o.group.end())
    refuse("group lacks this node, " + std::to_string(env_.node()));
}

unsigned LibraftMember::units(Time time) const {
  return static_cast<unsigned>((time + options_.unit - 1) / options_.unit);
}

// The first entry of a new group names its voters. All members store the same one, in term 1.
void LibraftMember::begin_group() {
  Servers servers;
  for (const NodeId node : options_.group)
    servers.push_back({std::uint64_t{node} + 1, Role::kVoter});
  std::ranges::sort(servers, {}, &Server::id);
  struct raft_configuration configuration;
  lib_.configuration_init(&configuration);
  fill_servers(configuration, servers);
  struct raft_buffer buffer {};
  const int status = lib_.configuration_encode(&configuration, &buffer);
  lib_.configuration_close(&configuration);
  if (status != 0 || configuration.n != servers.size())
    throw Error(ErrorCode::kInvalidArgument, "raft: group names a node twice");
  const auto* first = static_cast<const std::byte*>(buffer.base);
  Bytes payload(first, first + buffer.len);
  // The library leaves the bytes behind the last server as they were, different at each member.
  std::size_t used = 9;
  for (const Server& server : servers) used += 8 + address_of(server.id).size() + 2;
  std::fill(payload.begin() + static_cast<std::ptrdiff_t>(used), payload.end(), std::byte{0});
  lib_.free(buffer.base);
  store_.write_state(1, 0);
  store_.append({1, EntryType::kChange, payload});
  store_.sync();
  if (options_.durability == Durability::kMemory)
    loaded_.push_back({1, EntryType::kChange, payload});
}

void LibraftMember::start() {
  fill_io();
  int status = lib_.init(&raft_, &io_, &fsm_, self(), address_.c_str());
  if (status == 0) {
    initialized_ = true;
    lib_.set_election_timeout(&raft_, units(options_.election_timeout));
    lib_.set_heartbeat_timeout(&raft_, units(options_.heartbeat));
    lib_.set_install_snapshot_timeout(&raft_, units(options_.snapshot_timeout));
    lib_.set_snapshot_threshold(&raft_, options_.snapshot_threshold);
    lib_.set_snapshot_trailing(&raft_, options_.snapshot_trailing);
    lib_.set_pre_vote(&raft_, options_.pre_vote);
    status = lib_.start(&raft_);
  }
  loaded_.clear();
  if (status != 0) {
    const std::string why = lib_.errmsg(&raft_);
    stop();
    throw Error(ErrorCode::kUnavailable, "raft: libraft does not start: " + why);
  }
  started_ = true;
  watch();
}

void LibraftMember::stop() noexcept {
  if (!initialized_ || closing_) return;
  closing_ = true;
  lib_.close(&raft_, [](struct ::raft*) {});
  // The library waits for all that it has asked for. What a callback asks for in turn is refused.
  // An append ends without an error: the library only frees it once it is closed, but after an
  // error it cuts its log, and cuts beyond its end if two appends of a leader have failed.
  for (auto* queue : {&current_, &work_}) {
    for (const Work& work : *queue) {
      if (work.append != nullptr) work.append_done(work.append, 0);
      if (work.put != nullptr) work.put_done(work.put, RAFT_CANCELED);
    }
    queue->clear();
  }
  for (const Get& get : gets_) get.done(get.request, nullptr, RAFT_CANCELED);
  for (const Outgoing& out : outbox_) out.report(RAFT_CANCELED);
  for (const auto& [number, out] : in_flight_) out.report(RAFT_CANCELED);
  gets_.clear();
  outbox_.clear();
  in_flight_.clear();
  if (io_closed_ != nullptr) io_closed_(&io_);
}

void LibraftMember::fail(std::string why) {
  env_.reached("erpc/raft/member_failed");
  if (led_ && options_.observer != nullptr) options_.observer->follows(env_.node());
  failure_ = std::move(why);
  stop();
}

void LibraftMember::watch_role() {
  const bool leads = lib_.state(&raft_) == RAFT_LEADER;
  if (leads && (!led_ || led_term_ != raft_.current_term)) {
    if (!led_) take_new_term();
    led_term_ = raft_.current_term;
    ++counters_.elections_won;
    heard_.clear();
    if (options_.observer != nullptr) options_.observer->leads(env_.node(), led_term_);
  } else if (led_ && !leads && options_.observer != nullptr) {
    options_.observer->follows(env_.node());
  }
  led_ = leads;
}

// Libraft makes the only voter a leader of the present term, which another member may have led
// before it was removed.
void LibraftMember::take_new_term() {
  const Servers servers = servers_of(raft_.configuration);
  if (std::ranges::count(servers, Role::kVoter, &Server::role) != 1 ||
      !options_.bugs.sole_voter_takes_term())
    return;
  state_dirty_ = true;
  term_to_store_ = ++raft_.current_term;
  vote_to_store_ = raft_.voted_for = self();
}

void LibraftMember::watch() {
  watch_role();
  if (raft_.commit_index <= seen_commit_) return;
  seen_commit_ = raft_.commit_index;
  if (options_.observer != nullptr)
    options_.observer->committed(env_.node(), seen_commit_, raft_.current_term);
}

bool LibraftMember::majority(const std::function<bool(std::uint64_t)>& agrees) const {
  std::size_t voters = 0, agreeing = 0;
  for (const Server& server : servers_of(raft_.configuration)) {
    if (server.role != Role::kVoter) continue;
    ++voters;
    if (agrees(server.id)) ++agreeing;
  }
  return agreeing * 2 > voters;
}

bool LibraftMember::heard_majority() const {
  return leads() && majority([&](std::uint64_t id) {
           const auto at = heard_.find(id);
           return id == self() ||
                  (at != heard_.end() && now_ - at->second < options_.election_timeout);
         });
}

std::optional<NodeId> LibraftMember::leader() const {
  if (!running()) return std::nullopt;
  raft_id id = 0;
  const char* address = nullptr;
  lib_.leader(raft(), &id, &address);
  if (id == 0) return std::nullopt;
  return static_cast<NodeId>(id - 1);
}

}  // namespace pyrdma::erpc::raft

#endif
