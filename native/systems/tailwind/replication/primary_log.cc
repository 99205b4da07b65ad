#include "systems/tailwind/replication/primary_log.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "systems/tailwind/replication/placement.h"

namespace pyrdma::tailwind {

namespace {

constexpr int kLinkShift = 32;  // a wr_id has the number of its link above

template <class Message>
std::shared_ptr<const Bytes> encoded(const Message& message) {
  auto bytes = std::make_shared<Bytes>();
  ByteWriter out(*bytes);
  message.put(out);
  return bytes;
}

BackupStatus status_in(ByteView answer) {
  if (answer.size() != 1 || answer[0] > static_cast<std::byte>(BackupStatus::kRefused))
    return BackupStatus::kRefused;
  return static_cast<BackupStatus>(answer[0]);
}

}  // namespace

PrimaryLog::PrimaryLog(Transport& transport, const Options& options, Bugs bugs)
    : env_(transport.env()),
      transport_(transport),
      options_(options),
      self_(transport.self()),
      coordinator_{options.coordinator, Transport::kNewest},
      region_(env_.device().allocate(transport.domain(), options.log_bytes)),
      memory_({region_->data(), region_->size()}),
      max_sges_(std::min<std::uint32_t>(env_.device().capabilities().max_sges, 4)),
      mutex_(env_),
      rng_(env_.rng("tailwind/placement/" + std::to_string(self_.life))),
      log_(memory_, self_.number(), options.segment_bytes),
      order_(*this, options.replicas, bugs) {
  const std::uint32_t most = env_.device().capabilities().max_completions;
  completions_ = env_.device().create_completion_queue(
      std::min<std::uint32_t>(most, kSendEntries * std::max<std::uint32_t>(options.servers, 2)));
  const std::lock_guard<Mutex> lock(mutex_);
  if (!roll()) {
    throw Error(ErrorCode::kInvalidArgument,
                "log_bytes is " + std::to_string(options.log_bytes) +
                    ", which has no room for the first entries of a segment; give more");
  }
}

PrimaryLog::~PrimaryLog() = default;

Time PrimaryLog::deadline() const { return env_.now() + options_.call_timeout; }

ReplicationCounters PrimaryLog::counters() {
  const std::lock_guard<Mutex> lock(mutex_);
  return counters_;
}

std::uint64_t PrimaryLog::used_bytes() {
  const std::lock_guard<Mutex> lock(mutex_);
  return std::uint64_t{memory_.seglets() - memory_.free_seglets()} * LogMemory::kSeglet;
}

// ---- the log ----

// Data for the new head wait in memory until the last one is closed.
bool PrimaryLog::roll() {
  Segment* next = log_.prepare();
  if (next == nullptr) return false;
  const Segment* last = log_.head();
  order_.begin(next->id(), next->end());
  chain_.push_back(next->id());
  log_.advance();
  if (last != nullptr) order_.complete(last->id());
  ++counters_.rolls;
  return true;
}

Position PrimaryLog::append(std::span<const NewEntry> entries, Place* places,
                            std::span<const Place> dropped) {
  const std::lock_guard<Mutex> lock(mutex_);
  if (!log_.append(entries, places)) {
    if (log_.head()->has_room(entries) || !roll() || !log_.append(entries, places)) return {};
  }
  for (const Place place : dropped) log_.drop(place);
  ++counters_.appends;
  const Segment& head = *log_.head();
  order_.append(head.id(), head.end());
  step();
  return {head.id(), head.end()};
}

Position PrimaryLog::end() {
  const std::lock_guard<Mutex> lock(mutex_);
  return {log_.head()->id(), log_.head()->end()};
}

bool PrimaryLog::commit(Worker& worker, Position to, Time deadline) {
  if (is_committed(to)) return true;
  const Time begin = env_.now();
  const auto has_ended = [&] {
    if (mutex_.try_lock()) {
      const bool moves = poll_completions();
      mutex_.unlock();
      if (moves) env_.notify(completions_->watch());
    }
    return is_committed(to) || is_deposed();
  };
  worker.wait(has_ended, deadline, &completions_->watch());
  worker.replicating += env_.now() - begin;
  return is_committed(to);
}

void PrimaryLog::step() {
  order_.step();
  advance_committed();
}

// Only the first segment of the chain may have bytes that are not committed, and those behind it.
void PrimaryLog::advance_committed() {
  while (true) {
    const std::uint64_t first = chain_.front();
    const std::uint32_t committed = order_.committed(first);
    const Segment& segment = *log_.segments().at(first);
    committed_.store(
        std::max(committed_.load(std::memory_order_relaxed), Position{first, committed}.word()),
        std::memory_order_release);
    if (chain_.size() == 1 || committed < segment.end()) return;
    chain_.pop_front();
  }
}

void PrimaryLog::depose() {
  is_deposed_.store(true, std::memory_order_release);
  env_.notify(completions_->watch());
}

// ---- backups ----

void PrimaryLog::update(const ClusterView& view) {
  const std::lock_guard<Mutex> lock(mutex_);
  up_.clear();
  for (const ListedServer& server : view.servers)
    if (server.state == ServerState::kUp) up_.push_back(server.id);
  std::ranges::sort(up_);
  std::set<ServerId> lost;
  for (const auto& [id, held] : held_)
    if (!std::ranges::binary_search(up_, held.backup)) lost.insert(held.backup);
  for (const ServerId backup : lost) {
    std::erase_if(held_, [&](const auto& each) { return each.second.backup == backup; });
    replicas_at_.erase(backup);
    links_.erase(backup);
    order_.lost(backup.node);
  }
  step();
}

void PrimaryLog::tick() {
  {
    const std::lock_guard<Mutex> lock(mutex_);
    if (is_deposed()) return;
    refused_.clear();
    poll_completions();
    for (auto& [id, held] : held_)
      if (held.posted < held.wanted) pump(id, held);
    step();
  }
  env_.notify(completions_->watch());
}

PrimaryLog::Held* PrimaryLog::current(ReplicaId id, std::uint64_t attempt) {
  const auto at = held_.find(id);
  return at == held_.end() || at->second.attempt != attempt ? nullptr : &at->second;
}

void PrimaryLog::ask(ReplicaId id, std::uint64_t attempt, Opcode opcode,
                     std::shared_ptr<const Bytes> payload, OnAnswer on_answer) {
  const Held* held = current(id, attempt);
  if (held == nullptr || is_deposed()) return;
  ++counters_.control_rpcs;
  const ServerId backup = held->backup;
  const auto ended = [=, this](CallEnd end, ByteView answer) {
    if (end == CallEnd::kAnswered) {
      {
        const std::lock_guard<Mutex> lock(mutex_);
        if (current(id, attempt) == nullptr || is_deposed()) return;
        on_answer(answer);
        step();
      }
      env_.notify(completions_->watch());
      return;
    }
    if (on_broken) on_broken(backup);
    transport_.defer(env_.now() + options_.retry_pause, [=, this] {
      const std::lock_guard<Mutex> lock(mutex_);
      ask(id, attempt, opcode, payload, on_answer);
    });
  };
  transport_.call(backup, opcode, *payload, deadline(), ended);
}

NodeId PrimaryLog::open(ReplicaId id, std::uint64_t version, std::uint32_t bytes, bool is_copy) {
  std::vector<ServerId> candidates;
  for (const ServerId& each : up_) {
    if (each.node == self_.node || refused_.contains({id.segment, each})) continue;
    const auto first = held_.lower_bound({id.segment, 0}),
               last = held_.lower_bound({id.segment + 1, 0});
    if (std::none_of(first, last, [&](const auto& other) {
          return other.first != id && other.second.backup.node == each.node;
        }))
      candidates.push_back(each);
  }
  const ServerId* chosen = choose_backup(options_.placement, self_, up_, candidates, replicas_at_,
                                         options_.replicas, rng_);
  if (chosen == nullptr) return kNoBackup;
  Held& held = held_[id];
  held = {};
  held.backup = *chosen;
  held.attempt = next_attempt_++;
  held.version = version;
  held.first_bytes = bytes;
  held.is_copy = is_copy;
  ++replicas_at_[held.backup];
  const Bytes data = bytes_of(*log_.segments().at(id.segment), 0, bytes);
  const std::uint64_t attempt = held.attempt;
  ask(id, attempt, Opcode::kOpen,
      encoded(OpenRequest{{id.segment, attempt},
                          version,
                          is_copy,
                          options_.replication == Replication::kRamcloud,
                          data}),
      [=, this](ByteView answer) { opened(id, attempt, answer); });
  return chosen->node;
}

void PrimaryLog::opened(ReplicaId id, std::uint64_t attempt, ByteView bytes) {
  Held* held = current(id, attempt);
  ByteReader in(bytes);
  const auto answer = OpenAnswer::get(in);
  if (!answer || answer->status != BackupStatus::kOk ||
      answer->buffer.length < options_.segment_bytes) {
    env_.reached("tailwind/open_refused");
    refused_.insert({id.segment, held->backup});
    --replicas_at_[held->backup];
    held_.erase(id);
    order_.refused(id);
    return;
  }
  held->is_open = true;
  held->buffer = answer->buffer;
  held->posted = held->done = held->wanted = held->first_bytes;
  order_.opened(id);
}

void PrimaryLog::set_version(ReplicaId id, std::uint64_t version) {
  const std::uint64_t attempt = held_.at(id).attempt;
  ask(id, attempt, Opcode::kSetVersion, encoded(SetVersionRequest{{id.segment, attempt}, version}),
      [=, this](ByteView answer) {
        if (status_in(answer) == BackupStatus::kOk) order_.versioned(id, version);
      });
}

void PrimaryLog::close(ReplicaId id) {
  const Segment& segment = *log_.segments().at(id.segment);
  const std::uint64_t attempt = held_.at(id).attempt;
  const CloseRequest request{
      {id.segment, attempt}, segment.end(), segment.checksum(), segment.entries()};
  ask(id, attempt, Opcode::kClose, encoded(request), [=, this](ByteView answer) {
    if (status_in(answer) != BackupStatus::kOk) return;
    held_.at(id).is_open = false;
    order_.closed(id);
  });
}

void PrimaryLog::ask_coordinator(std::uint64_t segment, std::uint64_t version) {
  env_.reached("tailwind/version_raised");
  Bytes payload;
  ByteWriter out(payload);
  out.put(segment);
  out.put(version);
  transport_.call(coordinator_, Opcode::kRaiseVersion, payload, deadline(),
                  [=, this](CallEnd end, ByteView answer) {
                    if (end == CallEnd::kAnswered && answer.size() == 1) {
                      if (answer[0] == std::byte{0}) return depose();
                      {
                        const std::lock_guard<Mutex> lock(mutex_);
                        order_.consented(segment, version);
                        step();
                      }
                      env_.notify(completions_->watch());
                      return;
                    }
                    transport_.defer(env_.now() + options_.retry_pause, [=, this] {
                      const std::lock_guard<Mutex> lock(mutex_);
                      if (!is_deposed()) ask_coordinator(segment, version);
                    });
                  });
}

// ---- data ----

Bytes PrimaryLog::bytes_of(const Segment& segment, std::uint32_t from, std::uint32_t to) const {
  Bytes bytes;
  bytes.reserve(to - from);
  segment.for_pieces(from, to, [&](ByteView piece, std::uint32_t) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  });
  return bytes;
}

void PrimaryLog::write(ReplicaId id, std::uint32_t /*from*/, std::uint32_t to) {
  Held& held = held_.at(id);
  held.wanted = to;
  pump(id, held);
}

void PrimaryLog::pump(ReplicaId id, Held& held) {
  if (!held.is_open || held.posted >= held.wanted || is_deposed()) return;
  if (options_.replication == Replication::kRamcloud) return write_by_rpc(id, held);
  Link& link = link_to(held.backup);
  if (link.is_ready) write_by_nic(id, held, link);
}

void PrimaryLog::pump_all(ServerId backup) {
  for (auto& [id, held] : held_)
    if (held.backup == backup) pump(id, held);
}

void PrimaryLog::write_by_rpc(ReplicaId id, Held& held) {
  if (held.is_writing) return;
  held.is_writing = true;
  const std::uint32_t to = std::min(held.wanted, held.posted + kMostWrite);
  const Bytes data = bytes_of(*log_.segments().at(id.segment), held.posted, to);
  const auto request = encoded(BackupWriteRequest{{id.segment, held.attempt}, held.posted, data});
  const std::uint64_t attempt = held.attempt;
  held.posted = to;
  ++counters_.write_rpcs;
  counters_.bytes += data.size();
  --counters_.control_rpcs;  // which ask() counts
  ask(id, attempt, Opcode::kBackupWrite, request, [=, this](ByteView answer) {
    if (status_in(answer) != BackupStatus::kOk) return;
    Held& mine = held_.at(id);
    mine.is_writing = false;
    mine.done = to;
    order_.written(id, to);
    pump(id, mine);
  });
}

// A request takes as many pieces of memory as a gather list has.
void PrimaryLog::write_by_nic(ReplicaId id, Held& held, Link& link) {
  const Segment& segment = *log_.segments().at(id.segment);
  const bool flushes = options_.durability == Durability::kFlush;
  while (held.posted < held.wanted) {
    if (link.entries + 2 > kSendEntries) return;  // a completion goes on
    std::array<fabric::Sge, 4> pieces;
    std::uint32_t count = 0, to = held.posted;
    segment.for_pieces(held.posted, held.wanted, [&](ByteView piece, std::uint32_t) {
      if (count == max_sges_) return;
      pieces[count++] = {reinterpret_cast<std::uint64_t>(piece.data()),
                         static_cast<std::uint32_t>(piece.size()), region_->lkey()};
      to += static_cast<std::uint32_t>(piece.size());
    });
    std::array<fabric::WorkRequest, 2> requests;
    requests[0].opcode = fabric::Opcode::kWrite;
    requests[0].sges = pieces.data();
    requests[0].sge_count = count;
    requests[0].remote_addr = held.buffer.addr + held.posted;
    requests[0].rkey = held.buffer.rkey;
    requests[0].flags = flushes ? 0 : fabric::kSignaled;
    requests[1].opcode = fabric::Opcode::kRead;  // of no bytes: what is before it is in memory
    requests[1].remote_addr = held.buffer.addr;
    requests[1].rkey = held.buffer.rkey;
    requests[1].flags = fabric::kSignaled;
    const std::uint32_t entries = flushes ? 2 : 1;
    for (fabric::WorkRequest& request : requests) request.wr_id = link.number << kLinkShift;
    const fabric::PostResult result = link.qp->post({requests.data(), entries});
    if (result.accepted == 0 && result.error == fabric::PostError::kQueueFull) return;
    if (result.accepted != entries) return break_link(link);
    link.entries += entries;
    link.in_flight.push_back({id, held.attempt, to, entries});
    ++counters_.writes;
    counters_.bytes += to - held.posted;
    held.posted = to;
  }
}

bool PrimaryLog::poll_completions() {
  std::array<fabric::Completion, 32> batch;
  const std::size_t got = completions_->poll(batch);
  if (got == 0) return false;
  std::set<ServerId> freed;
  for (std::size_t i = 0; i < got; ++i) {
    const auto at = std::ranges::find_if(links_, [&](const auto& each) {
      return each.second.number == batch[i].wr_id >> kLinkShift;
    });
    if (at == links_.end() || !at->second.is_ready) continue;
    Link& link = at->second;
    if (batch[i].status != fabric::Status::kSuccess) {
      break_link(link);
      continue;
    }
    const InFlight ended = link.in_flight.front();
    link.in_flight.pop_front();
    const bool was_full = link.entries + 2 > kSendEntries;
    link.entries -= ended.entries;
    if (was_full) freed.insert(link.backup);
    if (Held* held = current(ended.replica, ended.attempt)) {
      held->done = ended.to;
      order_.written(ended.replica, ended.to);
    }
  }
  for (const ServerId backup : freed) pump_all(backup);
  step();
  return true;
}

PrimaryLog::Link& PrimaryLog::link_to(ServerId backup) {
  const auto [at, is_new] = links_.try_emplace(backup);
  if (is_new) {
    at->second.backup = backup;
    connect(at->second);
  }
  return at->second;
}

void PrimaryLog::connect(Link& link) {
  fabric::QpOptions options;
  options.send_entries = kSendEntries;
  options.receive_entries = 1;
  options.max_sges = max_sges_;
  options.access = 0;
  options.timeout_us = options_.timeout_us;
  options.retry_count = options_.retry_count;
  link.number = next_link_++;
  link.is_ready = false;
  link.in_flight.clear();
  link.entries = 0;
  link.qp =
      env_.device().create_queue_pair(transport_.domain(), *completions_, *completions_, options);
  const std::uint64_t number = link.number;
  const ServerId backup = link.backup;
  transport_.connect_log(backup, link.qp->address(), deadline(),
                         [=, this](std::optional<fabric::QpAddress> peer) {
                           const std::lock_guard<Mutex> lock(mutex_);
                           const auto at = links_.find(backup);
                           if (at == links_.end() || at->second.number != number || is_deposed())
                             return;
                           if (!peer) return break_link(at->second);
                           at->second.qp->connect(*peer);
                           at->second.is_ready = true;
                           pump_all(backup);
                         });
}

// Writes of the same bytes to the same places do no harm, so all that has not completed is written
// again. The view says whether the backup is lost.
void PrimaryLog::break_link(Link& link) {
  env_.reached("tailwind/link_broken");
  link.is_ready = false;
  link.qp.reset();
  link.number = next_link_++;
  const std::uint64_t number = link.number;
  const ServerId backup = link.backup;
  for (auto& [id, held] : held_)
    if (held.backup == backup) held.posted = held.done;
  transport_.defer(env_.now() + options_.retry_pause, [=, this] {
    if (on_broken) on_broken(backup);
    const std::lock_guard<Mutex> lock(mutex_);
    const auto at = links_.find(backup);
    if (at != links_.end() && at->second.number == number && !is_deposed()) connect(at->second);
  });
}

}  // namespace pyrdma::tailwind
