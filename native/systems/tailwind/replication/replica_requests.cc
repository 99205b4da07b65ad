// The RPCs of a primary's log about its replicas: open, version, close, and what the coordinator
// must know.
#include <algorithm>
#include <utility>

#include "systems/tailwind/replication/placement.h"
#include "systems/tailwind/replication/primary_log.h"
#include "systems/tailwind/replication/requests.h"

namespace pyrdma::tailwind {

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
  // At the start of a cluster the servers of the group come one after the other. One that is down
  // when this server comes back may stay away.
  if (options_.placement == Placement::kGroups &&
      !Groups(options_.servers, options_.replicas).are_among(met_, self_.node) &&
      env_.now() < awaits_group_until_)
    return kNoBackup;
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
  const ServerId* chosen = choose_backup(options_.placement, self_, options_.servers, candidates,
                                         replicas_at_, options_.replicas, rng_);
  if (chosen == nullptr) return kNoBackup;
  Held& held = held_[id];
  held = {};
  held.backup = *chosen;
  held.attempt = next_attempt_++;
  held.version = version;
  held.first_bytes = bytes;
  held.is_copy = is_copy;
  ++replicas_at_[held.backup];
  const Bytes data = bytes_of(held_segment(id.segment), 0, bytes);
  const std::uint64_t attempt = held.attempt;
  ask(id, attempt, Opcode::kOpen,
      shared_bytes(OpenRequest{{id.segment, attempt},
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

// The backup may have forgotten the replica, or have lost its memory or a part of it. Waiting for
// it to be there again would stop commits for good. To the others it is a replica that was lost
// with its backup.
void PrimaryLog::lose(ReplicaId id) {
  env_.reached("tailwind/replica_lost");
  const Held& held = held_.at(id);
  refused_.insert({id.segment, held.backup});
  --replicas_at_[held.backup];
  free_replica(held.backup, {id.segment, held.attempt});
  held_.erase(id);
  order_.lost(id);
}

void PrimaryLog::damaged(ServerId backup, const ReplicaName& name) {
  {
    const std::lock_guard<Mutex> lock(mutex_);
    const auto first = held_.lower_bound({name.segment, 0}),
               last = held_.lower_bound({name.segment + 1, 0});
    const auto found = std::find_if(first, last, [&](const auto& each) {
      return each.second.backup == backup && each.second.attempt == name.attempt;
    });
    if (found == last || is_deposed()) return;
    lose(found->first);
    step();
  }
  env_.notify(completions_->watch());
}

void PrimaryLog::set_version(ReplicaId id, std::uint64_t version) {
  const std::uint64_t attempt = held_.at(id).attempt;
  ask(id, attempt, Opcode::kSetVersion,
      shared_bytes(SetVersionRequest{{id.segment, attempt}, version}), [=, this](ByteView answer) {
        if (status_in(answer) != BackupStatus::kOk) return lose(id);
        order_.versioned(id, version);
      });
}

void PrimaryLog::close(ReplicaId id) {
  const Segment& segment = held_segment(id.segment);
  const std::uint64_t attempt = held_.at(id).attempt;
  const CloseRequest request{
      {id.segment, attempt}, segment.end(), segment.checksum(), segment.entries()};
  ask(id, attempt, Opcode::kClose, shared_bytes(request), [=, this](ByteView answer) {
    if (status_in(answer) != BackupStatus::kOk) return lose(id);
    held_.at(id).is_open = false;
    order_.closed(id);
  });
}

void PrimaryLog::ask_coordinator(std::uint64_t segment, std::uint64_t version) {
  env_.reached("tailwind/version_raised");
  raise_version(segment, version, [=, this] { order_.consented(segment, version); });
}

void PrimaryLog::raise_version(std::uint64_t segment, std::uint64_t version,
                               std::function<void()> act) {
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
                        act();
                        step();
                      }
                      env_.notify(completions_->watch());
                      return;
                    }
                    transport_.defer(env_.now() + options_.retry_pause, [=, this] {
                      const std::lock_guard<Mutex> lock(mutex_);
                      if (!is_deposed()) raise_version(segment, version, act);
                    });
                  });
}

}  // namespace pyrdma::tailwind
