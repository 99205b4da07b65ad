// Test helper: a primary's replicated log with its cleaner's host, its backups and its coordinator.
// Backups die and come back with what they had, or lose a single replica; requests arrive in any
// order but those of one replica. Who drives it decides what happens next, and picks what may be
// any: at random (replication_model_test.h), or every way (explore_test.cc).
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "systems/tailwind/recovery/find_log.h"
#include "systems/tailwind/replication/model_parts_test.h"
#include "systems/tailwind/replication/replicated_log.h"
#include "systems/tailwind/rpc/messages.h"

namespace pyrdma::tailwind {

class ReplicationWorld : public ReplicaRequests {
 public:
  static constexpr std::uint32_t kFirst = 50, kCapacity = 400;  // bytes of a segment

  ReplicationWorld(NodeId backups, std::uint32_t replicas, Bugs bugs)
      : backups_(backups),
        replicas_(replicas),
        bugs_(bugs),
        alive_(backups, true),
        log_(*this, replicas, bugs) {
    begin();
  }
  ReplicationWorld(const ReplicationWorld&) = delete;
  ReplicationWorld& operator=(const ReplicationWorld&) = delete;

  /// Ends all faults: everything must be committed.
  bool settles() {
    while (!undetected_.empty()) detect();
    report_damaged();
    alive_.assign(backups_, true);
    for (int turn = 0; turn < 10'000; ++turn) {
      clean();
      log_.step();
      if (pending_.empty() && answers_.empty() && !cleaning_) break;
      if (!pending_.empty()) arrive(0);
      while (!answers_.empty()) answer(0);
    }
    return log_.committed(head_) == ends_[head_] && !log_.is_mending() && !cleaning_;
  }
  std::uint64_t segments() const { return head_; }
  int losses = 0, replica_losses = 0, stale_returns = 0, cleanings = 0, compactions = 0,
      compacted_reads = 0;

  NodeId open(ReplicaId id, std::uint64_t version, std::uint32_t bytes, bool is_copy) override {
    std::vector<NodeId> free;
    for (NodeId backup = 0; backup < backups_; ++backup) {
      bool is_free = alive_[backup] || undetected_.contains(backup);
      for (std::uint32_t index = 0; index < replicas_; ++index)
        is_free = is_free && log_.backup({id.segment, index}) != backup;
      if (is_free) free.push_back(backup);
    }
    if (free.empty()) return kNoBackup;
    const NodeId backup = free[pick(free.size())];
    pending_.push_back({Request::Kind::kOpen, id, backup, version, bytes, is_copy});
    pending_.back().generation = lengths_[id.segment].size();
    pending_.back().attempt = attempts_[id] = ++newest_attempt_;
    return backup;
  }
  void write(ReplicaId id, std::uint32_t /*from*/, std::uint32_t to) override {
    ask({Request::Kind::kWrite, id, log_.backup(id), 0, to, false});
  }
  void set_version(ReplicaId id, std::uint64_t version) override {
    ask({Request::Kind::kVersion, id, log_.backup(id), version, 0, false});
  }
  void close(ReplicaId id) override {
    ask({Request::Kind::kClose, id, log_.backup(id), 0, 0, false});
  }
  void ask_coordinator(std::uint64_t segment, std::uint64_t version) override {
    pending_.push_back({Request::Kind::kCoordinator, {segment, 0}, kNoBackup, version, 0, false});
  }
  void free(std::uint64_t segment) override {
    for (std::uint32_t index = 0; index < replicas_; ++index) {
      const NodeId backup = log_.backup({segment, index});
      if (backup != kNoBackup) ask({Request::Kind::kFree, {segment, index}, backup, 0, 0, false});
    }
    freed_.insert(segment);
    ends_.erase(segment);
  }

 protected:
  using Request = ModelRequest;
  using Cleaning = ModelCleaning;

  /// Returns a number below `count`.
  virtual std::uint64_t pick(std::uint64_t count) = 0;
  /// The cleaner has moved all that is of use. It is asked again and again.
  virtual bool has_moved_all() = 0;
  /// A backup refuses an open; one loses a replica that a request is for.
  virtual bool refuses_open() = 0;
  virtual bool forgets() = 0;

  void ask(Request request) {
    request.attempt = attempts_[request.id];
    pending_.push_back(request);
  }
  void begin() {
    log_.begin(++newest_, kFirst);
    ends_[newest_] = kFirst;
    holders_[newest_] = {newest_};
    listed_.insert(newest_);
    digests_[newest_] = {listed_.begin(), listed_.end()};
    head_ = newest_;
  }
  void roll() {
    log_.complete(head_);
    last_ = end_of_log();
    begin();
  }
  /// Call it after each step: from the first commit on the log must be found.
  void note_begin() { has_begun_ = has_begun_ || log_.committed(head_) > 0; }
  void append(std::uint32_t bytes) {
    ends_[head_] += bytes;
    log_.append(head_, ends_[head_]);
  }

  // ---- the cleaner ----

  /// Segments that are closed at all backups.
  std::vector<std::uint64_t> all_closed() const {
    std::vector<std::uint64_t> closed;
    for (const std::uint64_t number : listed_)
      if (number != head_ && log_.is_closed(number)) closed.push_back(number);
    return closed;
  }
  /// One of them, or 0.
  std::uint64_t any_closed() {
    const std::vector<std::uint64_t> closed = all_closed();
    return closed.empty() ? 0 : closed[pick(closed.size())];
  }
  /// Leaves out what has been replaced by now, in what is not committed yet.
  Position end_of_log() { return ends_[head_] > kFirst ? Position{head_, ends_[head_]} : last_; }
  bool may_replace(Position end_of_work) {
    const std::uint64_t number = end_of_work.segment;
    return !bugs_.commits_before_cleaning() || !ends_.contains(number) ||
           !lengths_[number].empty() || log_.committed(number) >= end_of_work.end;
  }
  void begin_compaction(std::uint64_t number) {
    if (number != 0 && ends_[number] > kFirst + 1) compacting_.emplace(number, end_of_log());
  }
  void compact(std::uint64_t number, Position end_of_work) {
    lengths_[number].push_back(ends_[number]);
    replaced_before_[number].push_back(end_of_work);
    ends_[number] = kFirst + 1 + static_cast<std::uint32_t>(pick(ends_[number] - kFirst - 1));
    log_.compact(number, ends_[number]);
    ++compactions;
  }
  void begin_cleaning(std::vector<std::uint64_t> cleaned, std::uint64_t survivors) {
    Cleaning cleaning;
    cleaning.cleaned = std::move(cleaned);
    for (std::uint64_t i = 0; i < survivors; ++i) cleaning.survivors.push_back(++newest_);
    cleaning_ = cleaning;
    ++cleanings;
  }
  /// Goes on with the job, as CleanerHost::finish() says.
  void clean() {
    std::erase_if(compacting_, [this](const auto& entry) {
      const auto& [number, end_of_work] = entry;
      if (!listed_.contains(number)) return true;
      if (!log_.is_at_rest(number) || !may_replace(end_of_work)) return false;
      compact(number, end_of_work);
      return true;
    });
    if (!cleaning_) return;
    Cleaning& job = *cleaning_;
    if (!job.has_moved) {
      job.has_moved = has_moved_all();
      job.end_of_work = end_of_log();
    } else if (!job.has_begun) {
      if (head_ < job.survivors.back()) roll();
      job.has_begun = true;
      for (const std::uint64_t survivor : job.survivors) {
        ends_[survivor] = kFirst + 1 + static_cast<std::uint32_t>(pick(kCapacity - kFirst));
        log_.begin_side(survivor, kFirst, ends_[survivor]);
      }
    } else if (!job.is_listed) {
      if (!may_replace(job.end_of_work)) return;
      for (const std::uint64_t survivor : job.survivors)
        if (!log_.is_closed(survivor)) return;
      // Each survivor may have a part of what each cleaned segment had.
      for (auto& holding : holders_) {
        std::set<std::uint64_t>& held_by = holding.second;
        if (std::ranges::none_of(job.cleaned,
                                 [&](std::uint64_t number) { return held_by.contains(number); }))
          continue;
        moved_[holding.first] = held_by;
        for (const std::uint64_t number : job.cleaned) held_by.erase(number);
        held_by.insert(job.survivors.begin(), job.survivors.end());
      }
      for (const std::uint64_t number : job.cleaned) listed_.erase(number);
      if (bugs_.lists_survivors()) listed_.insert(job.survivors.begin(), job.survivors.end());
      job.is_listed = true;
      roll();
      for (const std::uint64_t number : job.cleaned) log_.forget(number, head_);
      jobs_.push_back(job);
    } else if (std::ranges::all_of(job.cleaned, [this](auto n) { return freed_.contains(n); })) {
      moved_.clear();
      cleaning_.reset();
    }
  }

  // ---- losses ----

  /// Fewer than all replicas are lost at a time, until the log is whole again.
  bool may_lose() const { return undetected_.empty() && !damaged_ && !log_.is_mending(); }
  void kill(NodeId backup) {
    alive_[backup] = false;
    undetected_.insert(backup);
    ++losses;
    end_requests(backup);
  }
  /// A backup that lives has a replica no more, or not whole. Returns false if the primary does not
  /// count on it.
  bool damage(NodeId backup, std::uint64_t segment) {
    auto& mine = held_[backup].replicas;
    for (std::uint32_t index = 0; index < replicas_ && ends_.contains(segment); ++index) {
      const ReplicaId id{segment, index};
      if (log_.backup(id) != backup || attempts_[id] != mine.at(segment).attempt) continue;
      damaged_ = id;
      ++replica_losses;
      mine.erase(segment);
      return true;
    }
    return false;
  }
  /// The backup has found it: PrimaryLog::damaged().
  void report_damaged() {
    if (!damaged_) return;
    const ReplicaId id = *damaged_;
    if (ends_.contains(id.segment) && log_.backup(id) != kNoBackup) return lose(id);
    damaged_.reset();
  }
  /// As PrimaryLog::lose().
  void lose(ReplicaId id) {
    if (damaged_ == id) damaged_.reset();
    ask({Request::Kind::kFree, id, log_.backup(id), 0, 0, false});
    attempts_[id] = 0;
    log_.lost(id);
  }
  void detect() {
    const NodeId backup = *undetected_.begin();
    undetected_.erase(backup);
    end_requests(backup);
    log_.lost(backup);
  }
  void end_requests(NodeId backup) {
    std::erase_if(pending_, [&](const Request& request) { return request.backup == backup; });
    std::erase_if(answers_, [&](const Request& request) { return request.backup == backup; });
  }
  /// The oldest request of the replica arrives.
  void arrive(std::size_t chosen) {
    const ReplicaId id = pending_[chosen].id;
    const auto at = std::ranges::find(pending_, id, &Request::id);
    Request request = *at;
    pending_.erase(at);
    if (request.kind != Request::Kind::kCoordinator && !alive_[request.backup]) return;
    if (request.kind == Request::Kind::kCoordinator) {
      known_[id.segment] = std::max(known_[id.segment], request.version);
      return answers_.push_back(request);
    }
    ModelBackup& backup = held_[request.backup];
    const bool is_open = request.kind == Request::Kind::kOpen;
    request.is_refused = is_open && refuses_open();
    const bool may_forget = !is_open && request.kind != Request::Kind::kFree && may_lose();
    if (may_forget && backup.has(id.segment, request.attempt) && forgets()) {
      request.is_refused = true;
      ++replica_losses;
    }
    if (backup.take(request)) answers_.push_back(request);
  }
  void answer(std::size_t chosen) {
    const Request request = answers_[chosen];
    answers_.erase(answers_.begin() + static_cast<std::ptrdiff_t>(chosen));
    if (request.kind != Request::Kind::kCoordinator) {
      if (request.attempt != attempts_[request.id]) return;
      if (request.is_refused && request.kind != Request::Kind::kOpen) return lose(request.id);
    }
    switch (request.kind) {
      case Request::Kind::kOpen:
        return request.is_refused ? log_.refused(request.id) : log_.opened(request.id);
      case Request::Kind::kWrite:
        return log_.written(request.id, request.to);
      case Request::Kind::kVersion:
        return log_.versioned(request.id, request.version);
      case Request::Kind::kClose:
        return log_.closed(request.id);
      case Request::Kind::kCoordinator:
        return log_.consented(request.id.segment, request.version);
      case Request::Kind::kFree:
        return;
    }
  }

  /// Backups that live and have a replica of the segment that counts.
  std::vector<NodeId> living(std::uint64_t segment) {
    std::vector<NodeId> living;
    for (std::uint32_t index = 0; index < replicas_; ++index) {
      const NodeId backup = log_.backup({segment, index});
      if (backup != kNoBackup && alive_[backup] && is_valid(backup, segment))
        living.push_back(backup);
    }
    return living;
  }
  /// The primary dies now, and these backups are there, among them some that were lost and have
  /// come back. Either the log is known not to be whole, or all that was committed is found.
  std::string judge(const std::vector<bool>& here, bool must_be_whole) {
    std::vector<FoundReplica> found;
    for (NodeId backup = 0; backup < backups_; ++backup) {
      if (!here[backup]) continue;
      for (const auto& [number, held] : held_[backup].replicas) {
        found.push_back({backup, number, held.version, held.is_closed, held.is_copy, held.bytes,
                         digests_[number]});
        stale_returns += !alive_[backup];
      }
    }
    const FoundLog log = find_log(found, known_);
    if (!log.missing.empty()) return must_be_whole && has_begun_ ? log.missing : "";
    std::set<std::uint64_t> whole;  // segments of which all that is committed is found
    for (const FoundLog::Part& part : log.parts) {
      const std::string name = "segment " + std::to_string(part.segment);
      if (freed_.contains(part.segment)) return name + " was freed and is used";
      const std::size_t generation = generation_of(part, *part.replicas.front());
      for (const FoundReplica* replica : part.replicas)
        if (generation_of(part, *replica) != generation) return name + ": its replicas differ";
      const auto& lengths = lengths_[part.segment];
      const std::uint32_t wanted = !part.is_closed               ? log_.committed(part.segment)
                                   : generation < lengths.size() ? lengths[generation]
                                                                 : ends_.at(part.segment);
      if (part.valid < wanted)
        return name + ": " + std::to_string(part.valid) + " of " + std::to_string(wanted) +
               " bytes are found";
      whole.insert(part.segment);
      compacted_reads += part.is_closed && generation != 0;
      if (generation != 0 && !is_found(log, replaced_before_[part.segment][generation - 1]))
        return name + ": what has replaced its entries is not found";
    }
    for (const Cleaning& job : jobs_) {
      const bool is_used = std::ranges::any_of(log.parts, [&](const FoundLog::Part& part) {
        return std::ranges::find(job.cleaned, part.segment) != job.cleaned.end();
      });
      if (!is_used && !is_found(log, job.end_of_work))
        return "what has replaced entries of cleaned segments is not found";
    }
    const auto are_whole = [&](const std::set<std::uint64_t>& segments) {
      return std::ranges::includes(whole, segments);
    };
    for (const auto& [origin, held_by] : holders_) {
      if (ends_.contains(origin) && log_.committed(origin) <= kFirst) continue;
      const auto before = moved_.find(origin);
      if (!are_whole(held_by) && (before == moved_.end() || !are_whole(before->second)))
        return "what segment " + std::to_string(origin) + " had is not found";
    }
    return {};
  }
  /// What the log had up to there. The segment may have been cleaned since.
  bool is_found(const FoundLog& log, Position end) {
    if (!listed_.contains(end.segment)) return true;
    return std::ranges::any_of(log.parts, [&](const FoundLog::Part& part) {
      return part.segment == end.segment && (part.is_closed || part.valid >= end.end);
    });
  }
  std::size_t generation_of(const FoundLog::Part& part, const FoundReplica& replica) {
    return held_[replica.backup].replicas.at(part.segment).generation;
  }
  bool is_valid(NodeId backup, std::uint64_t number) {
    return held_[backup].has_valid(number, known_.contains(number) ? known_.at(number) : 0);
  }

  const NodeId backups_;
  const std::uint32_t replicas_;
  const Bugs bugs_;
  std::map<std::uint64_t, std::uint32_t> ends_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> digests_;
  std::set<std::uint64_t> listed_;  // in the next digest
  std::set<std::uint64_t> freed_;
  std::map<std::uint64_t, Position> compacting_;                    // and the end of the work
  std::map<std::uint64_t, std::vector<std::uint32_t>> lengths_;     // before each compaction
  std::map<std::uint64_t, std::vector<Position>> replaced_before_;  // of each
  std::vector<Cleaning> jobs_;                                      // whose segments digests lack
  std::optional<Cleaning> cleaning_;
  // Segments that together have what one of the chain had; `moved_`: those before the job.
  std::map<std::uint64_t, std::set<std::uint64_t>> holders_, moved_;
  bool has_begun_ = false;
  std::map<ReplicaId, std::uint64_t> attempts_;  // the newest that the primary knows
  std::uint64_t newest_attempt_ = 0;
  std::optional<ReplicaId> damaged_;  // the primary does not know it yet
  std::uint64_t newest_ = 0, head_ = 0;
  Position last_;  // the end of the heads before
  std::vector<bool> alive_;
  std::set<NodeId> undetected_;
  std::map<NodeId, ModelBackup> held_;
  KnownVersions known_;
  std::vector<Request> pending_;
  std::deque<Request> answers_;
  ReplicatedLog log_;
};

}  // namespace pyrdma::tailwind
