// The errors of ticket locks, and what the nodes know of a lock, for reports.
#include <algorithm>

#include "base/error.h"
#include "base/remote_word.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco {

namespace {

bool is_among(const std::vector<NodeId>& nodes, NodeId node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

}  // namespace

void TicketLocks::throw_not_held(Caller& me, std::uint64_t i) {
  throw Error(ErrorCode::kInvalidArgument, "caller " + std::to_string(me.index()) + " of node " +
                                               std::to_string(self()) + " released lock " +
                                               std::to_string(i) + " of '" + name() +
                                               "' without holding it; " + report(me, i).text);
}

// A node without a connection to the lock's host has perhaps lost a ticket, or a release.
void TicketLocks::lost(NodeId peer) {
  store_release(&holder_word(count_ + rank_of(peer)), std::uint64_t{1});
}

std::optional<std::uint64_t> TicketLocks::ask(Caller& me, NodeId node, const RemoteRegion& at,
                                              std::uint64_t offset) {
  InFlight word(me.block(8));
  word.key = me.read(node, at, offset, word.block.sge(8));
  if (word.key.wait() != fabric::Status::kSuccess) return {};
  return *word.block.as<std::uint64_t>();
}

// The lock may move on meanwhile: a ticket is served if it is between those of two reads.
TicketLocks::Report TicketLocks::report(Caller& me, std::uint64_t i) {
  Report report;
  const std::vector<NodeId> silent = me.silent_peers();
  report.blamed = silent;
  const auto blame = [&](NodeId node) {
    if (!is_among(report.blamed, node)) report.blamed.push_back(node);
  };
  const NodeId host = host_of(i);
  const auto ask_serving = [&]() -> std::optional<std::uint64_t> {
    if (is_among(silent, host)) return std::nullopt;
    return ask(me, host, words_.at(host), place_of(i).now_serving);
  };
  const std::optional<std::uint64_t> first = ask_serving();
  std::vector<std::pair<NodeId, std::uint64_t>> tickets;  // of threads that wait
  std::string holder, losers;
  for (const NodeId node : participants()) {
    if (is_among(silent, node)) continue;
    const std::uint64_t word = ask(me, node, remote(node, 0), i * 8).value_or(0);
    if ((word & 0xff) == kWaits) {
      tickets.emplace_back(node, word >> 8);
    } else if (word != 0) {
      holder += "; caller " + std::to_string((word & 0xff) - 1) + " of node " +
                std::to_string(node) + " holds it, with ticket " + std::to_string(word >> 8);
      blame(node);
    }
    if (ask(me, node, remote(node, 0), (count_ + rank_of(host)) * 8).value_or(0) == 0) continue;
    losers += ' ' + std::to_string(node);
    if (word == 0 || (word & 0xff) == kWaits) blame(node);
  }
  const std::optional<std::uint64_t> serving = ask_serving();
  report.in_doubt = serving && (*serving & kInDoubt) != 0;
  const auto does_not_go_on = [&](NodeId node, const std::string& what) {
    holder += "; node " + std::to_string(node) + what +
              ", and no thread of it takes the lock or passes it on";
    blame(node);
  };
  for (const auto& [node, ticket] : tickets) {
    if (first && serving && ticket != kUnknown &&
        distance(ticket_of(*first), ticket) <= distance(ticket_of(*first), ticket_of(*serving)))
      does_not_go_on(node, " has ticket " + std::to_string(ticket));
  }
  for (const auto& [node, ticket] : tickets) {
    if (ticket == kUnknown && holder.empty()) does_not_go_on(node, " has dropped an acquisition");
  }
  report.text = "ticket " + (serving ? std::to_string(ticket_of(*serving)) : "unknown") +
                " is served; " +
                (silent.empty() ? "all nodes answer" : "no answer from node" + text_of(silent));
  if (!losers.empty()) {
    report.text += "; node" + losers + " lost the connection to the lock's host, node " +
                   std::to_string(host) +
                   ", and perhaps a ticket or a release with it: then nobody gets this lock until "
                   "the other nodes make one with another name, without node" +
                   losers;
  }
  report.text += holder.empty() ? "; none of the nodes that answer holds it" : holder;
  return report;
}

void TicketLocks::throw_unplaced(Caller& me, std::uint64_t i, fabric::Status status) const {
  const std::vector<NodeId> silent = me.silent_peers();
  throw Error(ErrorCode::kUnavailable,
              "the release of lock " + std::to_string(i) + " of '" + name() +
                  "' failed and the caller still holds the lock: operations before the release "
                  "failed (" +
                  to_string(status) + "); " +
                  (silent.empty() ? "all nodes answer" : "no answer from node" + text_of(silent)) +
                  "; check the protected data, then release with Fence::kNone",
              false)
      .blaming(silent);
}

void TicketLocks::throw_overdue(Caller& me, std::uint64_t i, const AcquireOp& op) {
  const bool queued = op.stage_ == AcquireOp::Stage::kLocalQueue;
  const Report known = report(me, i);
  throw Error(ErrorCode::kTimeout,
              "node " + std::to_string(self()) + " waited " +
                  std::to_string(manager().options().wait_timeout / kMillisecond) +
                  " ms for lock " + std::to_string(i) + " of '" + name() + "' at node " +
                  std::to_string(host_of(i)) +
                  (queued ? ", queued behind threads of the same node"
                          : ", ticket " + std::to_string(op.ticket_)) +
                  "; " + known.text,
              false)
      .blaming(known.blamed);
}

void TicketLocks::throw_passed(std::uint64_t i, std::uint64_t ticket, std::uint64_t serving) const {
  throw Error(ErrorCode::kInternal,
              "lock " + std::to_string(i) + " of '" + name() + "' at node " +
                  std::to_string(host_of(i)) + ": node " + std::to_string(self()) +
                  " took ticket " + std::to_string(ticket) +
                  ", but the lock already serves ticket " + std::to_string(serving) +
                  "; some code has overwritten the words of the lock",
              false);
}

void TicketLocks::throw_unreachable(std::uint64_t i, fabric::Status status) const {
  throw Error(ErrorCode::kUnavailable,
              "lock " + std::to_string(i) + " of '" + name() + "' is at node " +
                  std::to_string(host_of(i)) + ", which does not answer (" + to_string(status) +
                  "): it was killed or cut off. If it lives, this node has perhaps taken a ticket "
                  "that nobody gives back: then nobody gets the lock any more",
              false)
      .blaming({host_of(i)});
}

}  // namespace pyrdma::loco
