// Regions that clients lend each other (section 4.2): one that has ended is used for a lease at
// most, its memory has no other use before, and its key leads nowhere in the next life of its node.
#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "systems/krcore/fuzz/client.h"

namespace pyrdma::krcore::scenario {

using fabric::Opcode;
using fabric::Status;

namespace {

constexpr std::size_t kMostLent = 4, kMostHeirs = 6, kRecent = 8;

}  // namespace

// Nothing if the node has no room: ended regions wait for their leases.
std::optional<Registration> Client::region_of(std::uint64_t bytes) {
  try {
    const Registration made = app_.reg_mr(bytes);
    world_.nodes[env_.node()].keys.insert(made.key);
    return made;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kExhausted) throw;
    return std::nullopt;
  }
}

void Client::lend(const Planned& op) {
  if (lent_.size() >= kMostLent) give_back(op.draw);
  const auto made = region_of(64 * (1 + op.draw % 8));
  if (!made) return;
  lent_.push_back(world_.loans.size());
  world_.loans.push_back({env_.node(), world_.nodes[env_.node()].life, *made});
  ++world_.outcome.ok;
}

// Its owner uses the region itself, too: before its end, and in a third of the acts until its lease
// has ended, again and again.
void Client::give_back(std::uint64_t draw) {
  if (lent_.empty()) return;
  const auto which = lent_.begin() + static_cast<std::ptrdiff_t>(draw % lent_.size());
  const std::size_t number = *which;
  Loan& loan = world_.loans[number];
  lent_.erase(which);
  const Time lease = service_.options().lease;
  bool alone = false;
  const auto use_own = [&] {
    if (Link* own = link_to(env_.node(), 0); own != nullptr && !own->has_failed) {
      use_loan(*own, number, alone);
      wait(*own, 0);
      alone = !alone;
    }
  };
  use_own();
  loan.is_ending = true;
  app_.dereg_mr(loan.region);
  loan.removed = world_.now();
  // Those that come next may get its memory, when nobody writes there any more.
  if (draw % 2 == 0) env_.sleep_until(env_.now() + lease / 5);
  for (int i = 0; i < 2; ++i)
    if (const auto heir = region_of(loan.region.bytes)) heirs_.push_back(*heir);
  const Time until = draw / 8 % 3 == 0 ? loan.removed + lease + lease / 2 : world_.now();
  while (world_.now() < until && !world_.is_over) {
    use_own();
    env_.sleep_until(env_.now() + lease / 5);
  }
  if (const auto own = links_.find({env_.node(), 0}); own != links_.end() && own->second.has_failed)
    drop(own->second);
  look_at_heirs();
  for (; heirs_.size() > kMostHeirs; heirs_.pop_front()) app_.dereg_mr(heirs_.front());
  ++world_.outcome.ok;
}

void Client::look_at_heirs() {
  for (const Registration& heir : heirs_) {
    if (std::any_of(heir.data, heir.data + heir.bytes,
                    [](std::byte each) { return each != std::byte{0}; }))
      world_.violation("lease", "a new region holds a write to an old one");
    world_.outcome.made("new regions");
  }
}

void Client::use(Link& link, std::uint64_t draw) {
  std::vector<std::size_t> known;
  for (std::size_t i = world_.loans.size(); i-- > 0 && known.size() < kRecent;)
    if (world_.loans[i].owner == link.target && world_.loans[i].life == link.life)
      known.push_back(i);
  if (known.empty() || draw / 4 % 8 == 0) return try_old_key(link, draw);
  use_loan(link, known[draw / 32 % known.size()], draw / 1024 % 2 == 0);
}

// Behind a request to another region, or `alone`: the queue pair knows the region that it used
// last.
void Client::use_loan(Link& link, std::size_t number, bool alone) {
  const Registration& region = world_.loans[number].region;
  const std::uint64_t own = std::uint64_t{env_.node()} * world_.shape.clients + number_;
  List list;
  Posted before, to_it;
  before.kind = Posted::Kind::kRead;
  before.expected = link.words[0];
  to_it.kind = Posted::Kind::kLoan;
  to_it.number = number + 1;
  if ((!alone &&
       !add(list, before, Opcode::kRead, cell_at(link, 0), world_.nodes[link.target].cells.key)) ||
      !add(list, to_it, Opcode::kWrite, region.addr + own * 8 % region.bytes, region.key)) {
    give_up(list);
    return;
  }
  const std::uint64_t value = world_.next_value++;
  std::memcpy(at(list.posted.back().piece), &value, sizeof value);
  const Time since = world_.now();
  const bool is_posted = post(link, list);
  const Time removed = world_.loans[number].removed;
  const Time lease = service_.options().lease;
  if (removed == kForever || since < removed + lease + lease / 100) return;
  world_.outcome.made("ended leases");
  if (is_posted)
    world_.violation("lease", "a region was used " + std::to_string(since - removed) +
                                  " ns after its end; the lease is " + std::to_string(lease));
}

void Client::try_ended_loan(Link& link) {
  const auto ended = std::ranges::find_if(world_.loans, [&](const Loan& loan) {
    return loan.owner == link.target && loan.life == link.life && loan.is_ending;
  });
  if (ended != world_.loans.end())
    use_loan(link, static_cast<std::size_t>(ended - world_.loans.begin()), true);
}

// Whether a region has ended that a request names, as its refusal says.
bool Client::is_of_ended_loan(const Posted& posted, Status status) const {
  return posted.kind == Posted::Kind::kLoan && status == Status::kRemoteAccess &&
         world_.loans[posted.number - 1].is_ending;
}

// A node that has restarted may have its old physical keys. Those of regions are new.
void Client::try_old_key(Link& link, std::uint64_t draw) {
  std::vector<const Loan*> old;
  for (const Loan& loan : world_.loans)
    if (loan.owner == link.target && loan.life < link.life &&
        !world_.nodes[link.target].keys.contains(loan.region.key))
      old.push_back(&loan);
  if (old.empty() || !link.is_sure || link.life != world_.nodes[link.target].life) return;
  const Registration& region = old[draw / 4 % old.size()]->region;
  List list;
  Posted posted;
  posted.kind = Posted::Kind::kBad;
  if (!add(list, posted, Opcode::kWrite, region.addr, region.key)) return;
  if (!post(link, list)) world_.outcome.made("old keys");
}

}  // namespace pyrdma::krcore::scenario
