// The turn: what came in, then the durable term and vote, then messages, then the durable log.
#include "systems/erpc/raft/libraft/libraft_member.h"

#ifdef PYRDMA_LIBRAFT

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "env/scope.h"
#include "systems/erpc/scopes.h"

namespace pyrdma::erpc::raft {

namespace {

constexpr std::size_t kMaxInbox = 4096;

}  // namespace

void LibraftMember::receive(NodeId from, std::span<const std::byte> message) {
  if (!running()) return;
  ++counters_.received;
  if (inbox_.size() >= kMaxInbox) {
    ++counters_.refused;
    return;
  }
  inbox_.emplace_back(from, Bytes(message.begin(), message.end()));
}

Time LibraftMember::next_turn() const {
  if (!finished_.empty()) return 0;
  if (!running()) return kForever;
  const bool work = !inbox_.empty() || !outbox_.empty() || !work_.empty() || !gets_.empty() ||
                    !reports_->empty() || state_dirty_;
  return work ? 0 : next_tick_;
}

void LibraftMember::turn(Time now) {
  Scope step(env_, scope::raft_turn);
  if (running()) {
    now_ = std::max(now, now_);
    try {
      if (unsynced_) store_.sync();
      unsynced_ = false;
      std::vector<std::pair<NodeId, Bytes>> inbox;
      inbox.swap(inbox_);
      for (const auto& [from, bytes] : inbox) {
        deliver(from, bytes);
        settle();
        if (options_.bugs.reads_configuration_at_once()) read_configuration();
      }
      finish_sends();
      if (now_ >= next_tick_) {
        next_tick_ = now_ + options_.heartbeat;
        tick_(&io_);
        watch();
      }
      do {
        begin_term();
      } while (flush());
      read_configuration();
      if (lib_.state(&raft_) == RAFT_UNAVAILABLE)
        fail(std::string("libraft has given up: ") + lib_.errmsg(&raft_));
    } catch (const Error& error) {
      fail(std::string("the storage failed: ") + error.what());
    }
  }
  run_callbacks();
}

// A new leader appends a barrier. Libraft 0.15 appends nothing at an election, and takes its last
// entry for committed once a majority stores it, even if it is of an old term.
void LibraftMember::begin_term() {
  if (!led_ || barrier_term_ == led_term_ || !options_.bugs.appends_barrier()) return;
  if (barrier([](Outcome) {}) == Outcome::kAccepted) barrier_term_ = led_term_;
}

// One pass; returns whether there may be more to do.
bool LibraftMember::flush() {
  if (state_dirty_ && !options_.bugs.waits_before_speaking()) speak();
  if (state_dirty_) {
    state_dirty_ = false;
    store_.write_state(term_to_store_, vote_to_store_);
  }
  speak();
  if (!work_.empty()) return run_work();
  if (gets_.empty()) return false;
  std::vector<Get> gets;
  gets.swap(gets_);
  for (const Get& get : gets) {
    const auto& snapshot = store_.snapshot();
    if (snapshot == nullptr)
      get.done(get.request, nullptr, RAFT_NOTFOUND);
    else
      get.done(get.request, make_snapshot(*snapshot, false), 0);
  }
  watch();
  return true;
}

void LibraftMember::speak() {
  if (outbox_.empty()) return;
  if (options_.observer != nullptr)
    options_.observer->spoke(env_.node(), raft_.current_term, raft_.voted_for);
  std::vector<Outgoing> outbox;
  outbox.swap(outbox_);
  for (Outgoing& out : outbox) {
    Scope step(env_, scope::raft_send);
    const std::uint64_t number = next_send_++;
    Bytes bytes;
    bytes.swap(out.bytes);
    const NodeId to = out.to;
    in_flight_.emplace(number, std::move(out));
    ++counters_.sent;
    links_.send(to, bytes, [reports = reports_, number](bool delivered) {
      reports->emplace_back(number, delivered);
    });
  }
}

void LibraftMember::finish_sends() {
  Reports reports;
  reports.swap(*reports_);
  for (const auto& [number, delivered] : reports) {
    const auto at = in_flight_.find(number);
    if (at == in_flight_.end()) continue;
    const Outgoing out = std::move(at->second);
    in_flight_.erase(at);
    out.report(delivered ? 0 : RAFT_NOCONNECTION);
    watch();
  }
}

bool LibraftMember::run_work() {
  // A snapshot is durable before the work behind it begins.
  auto end = std::ranges::find(work_, Work::Kind::kSnapshot, &Work::kind);
  if (end == work_.begin()) ++end;
  current_.assign(std::make_move_iterator(work_.begin()), std::make_move_iterator(end));
  work_.erase(work_.begin(), end);
  bool stored = false;
  for (Work& work : current_) stored |= store_work(work);
  unsynced_ = !options_.bugs.syncs_before_acknowledging();
  try {
    if (!unsynced_) store_.sync();
  } catch (const Error&) {
    if (options_.bugs.ends_after_failed_append()) throw;
  }
  if (options_.observer != nullptr && stored)
    options_.observer->stored(env_.node(), store_.last_index());
  for (Work& work : current_) {
    if (auto* append = std::exchange(work.append, nullptr)) work.append_done(append, 0);
    auto* put = std::exchange(work.put, nullptr);
    if (put == nullptr) continue;
    const bool installed = work.trailing == 0;
    ++(installed ? counters_.snapshots_installed : counters_.snapshots_taken);
    env_.reached(installed ? "erpc/raft/snapshot_installed" : "erpc/raft/snapshot_taken");
    if (options_.observer != nullptr)
      options_.observer->snapshot(env_.node(), store_.snapshot()->index, installed);
    work.put_done(put, 0);
  }
  current_.clear();
  watch();
  return true;
}

// Returns whether it holds entries.
bool LibraftMember::store_work(Work& work) {
  if (work.kind == Work::Kind::kTruncate) store_.truncate(work.from);
  if (work.kind == Work::Kind::kSnapshot)
    store_.put_snapshot(std::move(work.snapshot), work.trailing);
  for (unsigned i = 0; i < work.count; ++i) {
    const struct raft_entry& entry = work.entries[i];
    configuration_moved_ = configuration_moved_ || entry.type == RAFT_CHANGE;
    store_.append({entry.term, static_cast<EntryType>(entry.type),
                   ByteView(static_cast<const std::byte*>(entry.buf.base), entry.buf.len)});
  }
  return work.count > 0;
}

void LibraftMember::run_callbacks() {
  std::vector<std::unique_ptr<Request>> finished;
  finished.swap(finished_);
  for (const auto& request : finished) request->done(request->outcome, request->answer);
}

}  // namespace pyrdma::erpc::raft

#endif
