// Test helper: the order of requests and the choice of replicas, as a model: backups die and come
// back with what they had, or lose a single replica, requests arrive in any order, a cleaner moves
// what segments have to others and compacts segments. After each turn the primary dies for a
// moment: what is committed must be found, and what was freed must not be used.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "systems/tailwind/recovery/find_log.h"
#include "systems/tailwind/replication/model_parts_test.h"
#include "systems/tailwind/replication/replicated_log.h"
#include "systems/tailwind/rpc/messages.h"

namespace pyrdma::tailwind {

/// A primary, its backups and its coordinator. Requests of one replica arrive in order.
class ReplicationModel : public ReplicaRequests {
 public:
  static constexpr NodeId kBackups = 7;
  static constexpr std::uint32_t kReplicas = 3;
  static constexpr std::uint32_t kFirst = 50, kCapacity = 400;  // bytes of a segment

  ReplicationModel(std::uint64_t seed, Bugs bugs, bool has_losses = true)
      : has_losses_(has_losses), bugs_(bugs), rng_(seed, 0, "model"), log_(*this, kReplicas, bugs) {
    begin();
  }

  /// Runs `turns` random turns; returns what was wrong, or nothing.
  std::string run(int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      act();
      clean();
      log_.step();
      const std::string wrong = check();
      if (!wrong.empty()) return "turn " + std::to_string(turn) + ": " + wrong;
    }
    return {};
  }
  /// Ends all faults: everything must be committed.
  bool settles() {
    while (!undetected_.empty()) detect();
    report_damaged();
    alive_.assign(kBackups, true);
    for (int turn = 0; turn < 10'000; ++turn) {
      clean();
      log_.step();
      if (pending_.empty() && answers_.empty() && !cleaning_) break;
      if (!pending_.empty()) arrive(0);
      while (!answers_.empty()) answer();
    }
    return log_.committed(head_) == ends_[head_] && !log_.is_mending() && !cleaning_;
  }
  std::uint64_t segments() const { return head_; }
  int losses = 0, replica_losses = 0, stale_returns = 0, cleanings = 0, compactions = 0,
      compacted_reads = 0;

  NodeId open(ReplicaId id, std::uint64_t version, std::uint32_t bytes, bool is_copy) override {
    std::vector<NodeId> free;
    for (NodeId backup = 0; backup < kBackups; ++backup) {
      bool is_free = alive_[backup] || undetected_.contains(backup);
      for (std::uint32_t index = 0; index < kReplicas; ++index)
        is_free = is_free && log_.backup({id.segment, index}) != backup;
      if (is_free) free.push_back(backup);
    }
    if (free.empty()) return kNoBackup;
    const NodeId backup = free[rng_.below(free.size())];
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
    for (std::uint32_t index = 0; index < kReplicas; ++index) {
      const NodeId backup = log_.backup({segment, index});
      if (backup != kNoBackup) ask({Request::Kind::kFree, {segment, index}, backup, 0, 0, false});
    }
    freed_.insert(segment);
    ends_.erase(segment);
  }

 private:
  using Request = ModelRequest;
  using Cleaning = ModelCleaning;
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

  // ---- the cleaner ----

  /// A segment that is closed at all backups, or 0.
  std::uint64_t any_closed() {
    std::vector<std::uint64_t> closed;
    for (const std::uint64_t number : listed_)
      if (number != head_ && log_.is_closed(number)) closed.push_back(number);
    return closed.empty() ? 0 : closed[rng_.below(closed.size())];
  }
  /// Leaves out what has been replaced by now, in what is not committed yet.
  Position end_of_log() { return ends_[head_] > kFirst ? Position{head_, ends_[head_]} : last_; }
  bool may_replace(Position end_of_work) {
    const std::uint64_t number = end_of_work.segment;
    return !bugs_.commits_before_cleaning() || !ends_.contains(number) ||
           !lengths_[number].empty() || log_.committed(number) >= end_of_work.end;
  }
  void begin_compaction() {
    const std::uint64_t number = any_closed();
    if (number != 0 && ends_[number] > kFirst + 1) compacting_.emplace(number, end_of_log());
  }
  void compact(std::uint64_t number, Position end_of_work) {
    lengths_[number].push_back(ends_[number]);
    replaced_before_[number].push_back(end_of_work);
    ends_[number] = kFirst + 1 + static_cast<std::uint32_t>(rng_.below(ends_[number] - kFirst - 1));
    log_.compact(number, ends_[number]);
    ++compactions;
  }
  void begin_cleaning() {
    Cleaning cleaning;
    const std::uint64_t most = 1 + rng_.below(4);
    for (std::uint64_t i = 0; i < most; ++i) {
      const std::uint64_t number = any_closed();
      if (number != 0 && std::ranges::find(cleaning.cleaned, number) == cleaning.cleaned.end())
        cleaning.cleaned.push_back(number);
    }
    if (cleaning.cleaned.empty()) return;
    const std::uint64_t survivors = 1 + rng_.below(4) / 3;
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
      job.has_moved = rng_.below(64) == 0;
      job.end_of_work = end_of_log();
    } else if (!job.has_begun) {
      if (head_ < job.survivors.back()) roll();
      job.has_begun = true;
      for (const std::uint64_t survivor : job.survivors) {
        ends_[survivor] = kFirst + 1 + static_cast<std::uint32_t>(rng_.below(kCapacity - kFirst));
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

  void act() {
    if (has_cleaner_ && rng_.below(12) == 0) {
      if (rng_.below(2) == 0)
        begin_compaction();
      else if (!cleaning_)
        begin_cleaning();
      return;
    }
    if (has_losses_ && rng_.below(12) == 0) return rng_.below(2) == 0 ? damage() : report_damaged();
    switch (rng_.below(12)) {
      case 0:
      case 1:
        return append();
      case 2:
        return kill();
      case 3:
        if (!undetected_.empty() && rng_.below(2) == 0) detect();
        return;
      case 4: {  // a backup comes back, and may be asked for new replicas
        const NodeId backup = static_cast<NodeId>(rng_.below(kBackups));
        if (!alive_[backup] && !undetected_.contains(backup)) alive_[backup] = true;
        return;
      }
      default:
        if (rng_.below(2) == 0 && !answers_.empty())
          answer();
        else if (!pending_.empty())
          arrive(rng_.below(pending_.size()));
    }
  }
  void append() {
    std::uint32_t& end = ends_[head_];
    if (end + 60 > kCapacity) return roll();
    end += 10 + static_cast<std::uint32_t>(rng_.below(50));
    log_.append(head_, end);
  }
  void kill() {
    const NodeId backup = static_cast<NodeId>(rng_.below(kBackups));
    // Fewer than kReplicas die at a time, until the log is whole again.
    if (!alive_[backup] || !may_lose()) return;
    alive_[backup] = false;
    undetected_.insert(backup);
    ++losses;
    end_requests(backup);
  }
  bool may_lose() { return has_losses_ && undetected_.empty() && !damaged_ && !log_.is_mending(); }
  /// A backup that lives has a replica no more, or not whole.
  void damage() {
    const NodeId backup = static_cast<NodeId>(rng_.below(kBackups));
    auto& mine = held_[backup].replicas;
    if (!alive_[backup] || mine.empty() || !may_lose()) return;
    const auto chosen = std::next(mine.begin(), static_cast<int>(rng_.below(mine.size())));
    for (std::uint32_t index = 0; index < kReplicas && ends_.contains(chosen->first); ++index) {
      const ReplicaId id{chosen->first, index};
      if (log_.backup(id) != backup || attempts_[id] != chosen->second.attempt) continue;
      damaged_ = id;
      ++replica_losses;
      mine.erase(chosen);
      return;
    }
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
    request.is_refused = is_open && rng_.below(10) == 0;
    const bool may_forget = !is_open && request.kind != Request::Kind::kFree && may_lose();
    if (may_forget && backup.has(id.segment, request.attempt) && rng_.below(60) == 0) {
      request.is_refused = true;
      ++replica_losses;
    }
    if (backup.take(request)) answers_.push_back(request);
  }
  void answer() {
    const Request request = answers_.front();
    answers_.pop_front();
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

  /// The primary dies now. Any backups are there, among them some that were lost and have come
  /// back. Either the log is known not to be whole, or all that was committed is found; it is whole
  /// if a backup of each segment is there that was not lost.
  std::string check() {
    std::vector<bool> here(kBackups);
    for (NodeId backup = 0; backup < kBackups; ++backup) here[backup] = rng_.below(3) == 0;
    bool must_be_whole = rng_.below(2) == 0;
    for (const auto& [number, end] : ends_) {
      if (!must_be_whole || log_.committed(number) == 0) continue;
      std::vector<NodeId> living;
      for (std::uint32_t index = 0; index < kReplicas; ++index) {
        const NodeId backup = log_.backup({number, index});
        if (backup != kNoBackup && alive_[backup] && is_valid(backup, number))
          living.push_back(backup);
      }
      if (living.empty())
        must_be_whole = false;  // beyond what replicas can bear
      else if (std::ranges::none_of(living, [&](NodeId backup) { return here[backup]; }))
        here[living[rng_.below(living.size())]] = true;
    }
    std::vector<FoundReplica> found;
    for (NodeId backup = 0; backup < kBackups; ++backup) {
      if (!here[backup]) continue;
      for (const auto& [number, held] : held_[backup].replicas) {
        found.push_back({backup, number, held.version, held.is_closed, held.is_copy, held.bytes,
                         digests_[number]});
        stale_returns += !alive_[backup];
      }
    }
    const FoundLog log = find_log(found, known_);
    has_begun_ = has_begun_ || log_.committed(head_) > 0;
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

  bool has_losses_;
  Bugs bugs_;
  Rng rng_;
  bool has_cleaner_ = rng_.below(4) != 0;
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
  std::vector<bool> alive_ = std::vector<bool>(kBackups, true);
  std::set<NodeId> undetected_;
  std::map<NodeId, ModelBackup> held_;
  KnownVersions known_;
  std::vector<Request> pending_;
  std::deque<Request> answers_;
  ReplicatedLog log_;
};

}  // namespace pyrdma::tailwind
