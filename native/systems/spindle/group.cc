// The application's calls.
#include "systems/spindle/group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/held_flag.h"
#include "runtime/caller.h"
#include "systems/spindle/scopes.h"

namespace pyrdma::spindle {

namespace {

/// A node is a new member each time that it joins: after a restart, or after it was excluded.
constexpr std::uint32_t kJoinsPerStart = 1 << 12;

Options opened(Env& env, const Options& options) {
  env.device().open();
  return checked(options, env.device().capabilities());
}

}  // namespace

const char* to_string(Standing standing) {
  switch (standing) {
    case Standing::kOutside:
      return "outside";
    case Standing::kMember:
      return "member";
    case Standing::kLeft:
      return "left";
    case Standing::kExcluded:
      return "excluded";
  }
  return "unknown";
}

Group::Group(Env& env, const Options& options, std::vector<SubgroupSpec> subgroups, Upcalls upcalls,
             Bugs bugs)
    : env_(env),
      options_(opened(env, options)),
      specs_(std::move(subgroups)),
      upcalls_(std::move(upcalls)),
      bugs_(bugs),
      self_{env.node(), env.incarnation() * kJoinsPerStart},
      domain_(env.device().create_protection_domain()),
      channel_(env, options_),
      lock_(env),
      reserved_(specs_.size()),
      sent_before_(specs_.size()),
      delivered_(specs_.size()),
      is_waiting_(specs_.size()),
      quiet_(specs_.size()) {
  past_.subgroups.resize(specs_.size());
  ViewShape::of(0, {self_}, specs_);  // refuses bad subgroups now
  if (upcalls_.load) {
    whole_state_ = std::make_unique<WholeState>(specs_.size(), upcalls_.save, upcalls_.load);
    upcalls_.ask_state = [this](std::uint32_t g, bool begins) {
      return whole_state_->ask(g, begins);
    };
    upcalls_.give_state = [this](std::uint32_t g, ByteView request) {
      return whole_state_->give(g, request);
    };
    upcalls_.take_state = [this](std::uint32_t g, ByteView answer) {
      return whole_state_->take(g, answer);
    };
  }
  serve_requests();
}

Group::~Group() {
  is_stopping_.store(true, std::memory_order_release);
  beats_.reset();
  thread_.reset();
}

void Group::start_threads() {
  if (has_own_thread() && !thread_) thread_ = env_.spawn("spindle", [this] { run(); });
  if (!beats_) beats_ = env_.spawn("spindle beats", [this] { run_beats(); });
}

void Group::found(std::vector<NodeId> nodes, std::uint64_t view) {
  std::ranges::sort(nodes);
  std::vector<Member> members;
  self_.incarnation = 0;  // founders count their joins from here on
  for (const NodeId node : nodes) {
    if (node >= env_.nodes()) {
      throw Error(ErrorCode::kInvalidArgument, "found: node " + std::to_string(node) +
                                                   "; the nodes are 0 to " +
                                                   std::to_string(env_.nodes() - 1));
    }
    if (!members.empty() && members.back().node == node) {
      throw Error(ErrorCode::kInvalidArgument,
                  "found: node " + std::to_string(node) + " is named twice; name each node once");
    }
    members.push_back({node, 0});
  }
  if (std::ranges::find(nodes, env_.node()) == nodes.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                "found: node " + std::to_string(env_.node()) +
                    " is not among the nodes of the first view; join() it, or name it");
  }
  enter_first(std::move(members), view, static_cast<Rank>(nodes.size()));
  view_->is_first = true;
  start_threads();
  std::vector<NodeId> missing;
  if (comes_in([&] {
        const Locked locked(lock_);
        view_->for_peers([&](Rank peer) {
          if (!view_->links.is_open(peer)) missing.push_back(view_->shape.members[peer].node);
        });
      }))
    return;
  throw Error(
      ErrorCode::kTimeout,
      "node " + std::to_string(env_.node()) + ": the first view did not begin: " +
          (missing.empty() ? why_excluded()
                           : "it has no connection to the nodes" + runtime::text_of(missing) +
                                 "; do they run the same program with "
                                 "the same nodes and subgroups?"))
      .blaming(missing);
}

// Waits until a view of this node runs. After join_timeout it calls `is_late`, and gives up.
bool Group::comes_in(FunctionRef<void()> is_late) {
  const auto is_over = [this] {
    return standing() != Standing::kOutside &&
           (standing() != Standing::kMember || is_running_.load(std::memory_order_acquire));
  };
  if (!wait_until(is_over, env_.now() + options_.join_timeout)) {
    is_late();
    gives_up_.store(true, std::memory_order_release);
    has_news_.store(true, std::memory_order_release);
    wait_until(is_over, kForever);
  }
  return standing() == Standing::kMember;
}

void Group::join(std::vector<NodeId> contacts) {
  if (standing() == Standing::kMember) {
    throw Error(ErrorCode::kInvalidArgument,
                "join: node " + std::to_string(env_.node()) + " is a member of view " +
                    std::to_string(view_id()) + " already; leave() first");
  }
  if (has_failed_.load(std::memory_order_acquire)) {
    throw Error(ErrorCode::kUnavailable,
                "join: the predicate thread of node " + std::to_string(env_.node()) +
                    " has ended by an error (" + why_excluded() + "); make a new Group");
  }
  std::erase(contacts, env_.node());
  if (contacts.empty())
    throw Error(ErrorCode::kInvalidArgument, "join: give the nodes of at least one member");
  {
    const Locked locked(lock_);
    if (standing() != Standing::kOutside) ++self_.incarnation;
    // Messages of the view that has ended without this node do not count.
    delivered_ = sent_before_;
    is_leaving_.store(false, std::memory_order_release);
    contacts_ = contacts;
    next_join_ = 0;
    gives_up_.store(false, std::memory_order_release);
    standing_.store(Standing::kOutside, std::memory_order_release);
  }
  start_threads();
  if (comes_in([] {})) return;
  throw Error(ErrorCode::kTimeout, "node " + std::to_string(env_.node()) +
                                       " was not let into the group through the nodes" +
                                       runtime::text_of(contacts) + ": " + why_excluded())
      .blaming(contacts);
}

void Group::leave(Time timeout) {
  const Time deadline = env_.now() + timeout;
  if (standing() != Standing::kMember) return;
  // Messages that a silent sender holds up are with all members by then, who deliver them at the
  // end of the view.
  if (bugs_.leaves_after_last())
    wait_until([this] { return has_sent_all(); },
               std::min(deadline, env_.now() + options_.suspicion_timeout));
  is_leaving_.store(true, std::memory_order_release);
  has_news_.store(true, std::memory_order_release);
  const auto is_out = [this] { return standing() != Standing::kMember; };
  if (wait_until(is_out, deadline)) return;
  throw Error(ErrorCode::kTimeout,
              "leave: the others did not agree on a view without node " +
                  std::to_string(env_.node()) + "; are a majority of them up?",
              false);
}

/// All members have delivered what this one has sent. A batch that is not full leaves.
bool Group::has_sent_all() {
  const Locked locked(lock_);
  if (standing() != Standing::kMember) return true;
  if (!view_->is_running || !carried_.empty()) return false;
  return std::ranges::all_of(view_->subgroups, [](Subgroup& each) {
    if (!each.is_sender()) return true;
    each.flush();
    return each.delivered_by_all() == each.queued();
  });
}

std::string Group::why_excluded() {
  const Locked locked(lock_);
  return why_excluded_;
}

std::vector<Member> Group::members() {
  const Locked locked(lock_);
  return view_ ? view_->shape.members : std::vector<Member>();
}

bool Group::is_settled() {
  const Locked locked(lock_);
  return standing() == Standing::kMember && view_->is_running && !view_->membership.is_changing();
}

void Group::pause_until(Time until) {
  if (has_own_thread())
    env_.sleep_until(until);
  else
    wait_until([] { return false; }, until);
}

bool Group::wait_until(FunctionRef<bool()> ready, Time deadline, Watch* only) {
  if (has_own_thread()) return env_.poll_until(ready, deadline, only);
  bool is_ready = false;
  while (true) {
    const Time until = std::min(deadline, env_.now() + options_.heartbeat);
    env_.poll_until(
        [&] {
          const bool is_busy = turn();
          is_ready = ready();
          return is_ready || is_busy;
        },
        until);
    if (is_ready) return true;
    if (until == deadline && env_.now() >= deadline) return ready();
  }
}

void Group::check_sender(std::uint32_t subgroup, const char* call) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidArgument, std::string(call) + ": " + why);
  };
  if (subgroup >= specs_.size()) {
    refuse("subgroup " + std::to_string(subgroup) + "; the group has " +
           std::to_string(specs_.size()) + ", from 0 on");
  }
  const Locked locked(lock_);
  if (standing() != Standing::kMember) {
    throw Error(
        ErrorCode::kUnavailable,
        std::string(call) + ": node " + std::to_string(env_.node()) + " is " +
            to_string(standing()) + ", not a member; " +
            (standing() == Standing::kExcluded ? why_excluded_ : "found() or join() first"));
  }
  if (view_ && !view_->subgroups[subgroup].is_sender()) {
    refuse("node " + std::to_string(env_.node()) + " is no sender of subgroup " +
           std::to_string(subgroup) + "; name it among the subgroup's senders");
  }
}

// The wait ends when all members have delivered the slot's last message, or when a new view begins.
std::span<std::byte> Group::reserve(std::uint32_t subgroup, Time deadline) {
  Reserved& reserved = reserved_.at(subgroup);
  bool has_failed = false;
  const auto take = [&] {
    env_.catch_up();
    const Scope step(env_, scope::reserve);
    const Locked locked(lock_);
    if (standing() != Standing::kMember || !view_->subgroups[subgroup].is_sender()) {
      has_failed = true;
    } else if (view_->is_running && !view_->membership.is_changing() &&
               std::ranges::none_of(carried_, [subgroup](const Carried& each) {
                 return each.subgroup == subgroup;
               })) {
      reserved.bytes = view_->subgroups[subgroup].acquire();
      reserved.view = reserved.bytes.empty() ? nullptr : view_.get();
    }
    return has_failed || reserved.view != nullptr;
  };
  if (!take()) {
    const Time begin = env_.now();
    is_waiting_[subgroup].store(true, std::memory_order_release);
    const HeldFlag waiting(&is_waiting_[subgroup]);
    wait_until(take, deadline, &space_);
    sender_wait_.fetch_add(env_.now() - begin, std::memory_order_relaxed);
  }
  if (has_failed) check_sender(subgroup, "reserve");
  return reserved.bytes;
}

void Group::send(std::uint32_t subgroup, std::uint32_t bytes) {
  env_.catch_up();
  const Scope step(env_, scope::queue);
  Reserved& reserved = reserved_.at(subgroup);
  if (reserved.view == nullptr) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "send: no slot of subgroup " + std::to_string(subgroup) + " is reserved; reserve() first");
  }
  if (bytes > reserved.bytes.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "send: a message of " + std::to_string(bytes) + " B; the slots of subgroup " +
                    std::to_string(subgroup) + " have " + std::to_string(reserved.bytes.size()) +
                    "; raise max_message");
  }
  {
    const Locked locked(lock_);
    if (reserved.view == view_.get() && !view_->membership.row().wedged) {
      view_->subgroups[subgroup].commit(bytes);
    } else if (standing() == Standing::kMember) {
      // The view has ended, or ends: the next one sends the message after those that it sends
      // again.
      env_.reached("spindle/sent_in_next_view");
      has_carried_.store(true, std::memory_order_release);
      carried_.push_back({subgroup, {reserved.bytes.begin(), reserved.bytes.begin() + bytes}});
    }
    reserved = {};
  }
  if (is_asleep_) has_news_.store(true, std::memory_order_release);
}

std::uint64_t Group::try_send(std::uint32_t subgroup, ByteView message) {
  const Locked locked(lock_);
  if (standing() != Standing::kMember || !view_->is_running || view_->membership.is_changing() ||
      has_carried_.load(std::memory_order_relaxed) || reserved_.at(subgroup).view != nullptr ||
      !view_->subgroups[subgroup].is_sender())
    return 0;
  const std::span<std::byte> slot = view_->subgroups[subgroup].acquire();
  if (slot.size() < message.size() || slot.empty()) return 0;
  std::ranges::copy(message, slot.begin());
  view_->subgroups[subgroup].commit(static_cast<std::uint32_t>(message.size()));
  return sent_before_[subgroup] + view_->subgroups[subgroup].queued();
}

// What the last view has delivered is with all members when the next one runs.
std::optional<bool> Group::is_delivered(std::uint32_t subgroup, std::uint64_t number) {
  const Locked locked(lock_);
  if (standing() != Standing::kMember) return false;
  if (view_->is_running)
    delivered_[subgroup] = sent_before_[subgroup] + view_->subgroups[subgroup].delivered_by_all();
  return number <= delivered_[subgroup] ? std::optional(true) : std::nullopt;
}

void Group::flush(std::uint32_t subgroup) {
  const Locked locked(lock_);
  if (view_) view_->subgroups.at(subgroup).flush();
}

std::string Group::describe_wait(std::uint32_t subgroup) {
  const Locked locked(lock_);
  std::string text;
  if (!view_ || !view_->is_running) {
    text = "the view is not connected yet";
  } else if (view_->membership.is_changing()) {
    text =
        view_->membership.lacks_majority()
            ? "the members that answer are no majority of the view, which may not install another"
            : "the view is changing";
  } else {
    text = "all " + std::to_string(view_->shape.subgroups[subgroup].window) +
           " slots are in use: " + describe_slowest(view_->subgroups[subgroup].slowest_member());
  }
  return text;
}

// Under the lock.
std::string Group::describe_slowest(Rank rank) {
  const std::string text =
      "node " + std::to_string(view_->shape.members[rank].node) + " has delivered the least; ";
  const std::uint64_t percent =
      view_->table.load(view_->table.layout().heartbeat(rank)) & ((1U << kPercentBits) - 1);
  if (percent >= 50) {
    return text + "its upcalls take " + std::to_string(percent) +
           " % of its time: make them shorter, or hand the messages to another thread";
  }
  return text +
         "does its upcall block, or does a sender before it in the order not send "
         "(null_sends)?";
}

std::vector<Group::TableRow> Group::table(std::uint32_t subgroup) {
  const Locked locked(lock_);
  std::vector<TableRow> rows;
  if (!view_) return rows;
  const SubgroupShape& shape = view_->shape.subgroups.at(subgroup);
  const Layout& layout = view_->table.layout();
  for (const Rank member : shape.members) {
    const bool is_sender = shape.sender_index(member) != kNotHere;
    rows.push_back({view_->shape.members[member].node, is_sender,
                    is_sender ? view_->table.load(layout.guard(subgroup, member)) : 0,
                    view_->table.load(layout.received(subgroup, member)),
                    view_->table.load(layout.delivered(subgroup, member))});
  }
  return rows;
}

// Without a thread, or in no view, nobody else changes the counters.
Group::Counters Group::counters() {
  if (thread_ && standing() == Standing::kMember) {
    wants_counters_.store(true, std::memory_order_release);
    has_news_.store(true, std::memory_order_release);
    env_.poll_until(
        [this] {
          return !wants_counters_.load(std::memory_order_acquire) ||
                 standing() != Standing::kMember;
        },
        kForever, &space_);
  } else {
    count();
  }
  const Locked locked(lock_);
  return counted_;
}

void Group::count() {
  const Locked locked(lock_);
  counted_ = past_;
  counted_.sender_wait = sender_wait_.load(std::memory_order_relaxed);
  if (!view_) return;
  for (std::size_t g = 0; g < specs_.size(); ++g)
    counted_.subgroups[g].add(view_->subgroups[g].counters());
  counted_.requests += view_->links.posted();
  counted_.doorbells += view_->links.doorbells();
  counted_.table_bytes = view_->table.layout().bytes();
}

}  // namespace pyrdma::spindle
