#include "systems/tailwind/recovery/recovery_master.h"

#include <utility>

#include "systems/tailwind/log/entry.h"

namespace pyrdma::tailwind {

RecoveryMaster::RecoveryMaster(Worker& worker, Transport& transport, const Options& options,
                               BackupService& backup, ObjectManager& objects, PrimaryLog& log)
    : worker_(worker),
      transport_(transport),
      env_(transport.env()),
      options_(options),
      backup_(backup),
      objects_(objects),
      log_(log),
      shared_(std::make_shared<Shared>(env_)) {}

void RecoveryMaster::ask(const RecoverRequest& work, const Fetch& fetch) {
  const ReadReplicaRequest request{work.dead, fetch.part->segment, fetch.part->valid, fetch.from,
                                   work.tablets};
  Bytes payload;
  ByteWriter out(payload);
  if (fetch.part->backups[fetch.backup] == transport_.self()) {
    Bytes entries;
    backup_.read_replica(request, entries).put(out);
    const std::lock_guard<Mutex> lock(shared_->mutex);
    shared_->arrived.push_back({fetch, true, std::move(payload)});
    shared_->count.fetch_add(1, std::memory_order_release);
    return;
  }
  request.put(out);
  transport_.call(fetch.part->backups[fetch.backup], Opcode::kReadReplica, payload,
                  env_.now() + 10 * options_.call_timeout,
                  [shared = shared_, fetch, env = &env_](CallEnd end, ByteView answer) {
                    {
                      const std::lock_guard<Mutex> lock(shared->mutex);
                      shared->arrived.push_back(
                          {fetch, end == CallEnd::kAnswered, {answer.begin(), answer.end()}});
                    }
                    shared->count.fetch_add(1, std::memory_order_release);
                    env->notify(shared->watch);
                  });
}

// The newest part first: the log then gets few versions that a later part replaces. In the order of
// the log it would get all of them, more than its memory and the disks of its backups may take.
bool RecoveryMaster::run(const RecoverRequest& work, RecoverAnswer& answer) {
  std::size_t left = work.parts.size();
  std::uint32_t under_way = 0;
  while (left != 0 || under_way != 0) {
    while (under_way < kUnderWay && left != 0) {
      const RecoverRequest::Part& part = work.parts[--left];
      if (part.backups.empty()) {
        answer.lost_segment = part.segment;
        return false;
      }
      ask(work, {&part, (left + 1) % part.backups.size(), 0});
      ++under_way;
    }
    worker_.wait([&] { return shared_->count.load(std::memory_order_acquire) != 0; }, kForever,
                 &shared_->watch);
    Arrived arrived;
    {
      const std::lock_guard<Mutex> lock(shared_->mutex);
      arrived = std::move(shared_->arrived.front());
      shared_->arrived.pop_front();
      shared_->count.fetch_sub(1, std::memory_order_relaxed);
    }
    --under_way;
    Fetch fetch = arrived.fetch;
    ByteReader in(arrived.answer);
    const auto got = arrived.has_answer ? ReadReplicaAnswer::get(in) : std::nullopt;
    const bool is_read = got && got->status == BackupStatus::kOk && got->next > fetch.from &&
                         got->next <= fetch.part->valid;
    const Stored stored = is_read ? store(got->entries, answer) : Stored::kDamaged;
    if (stored == Stored::kNoRoom) return false;
    if (stored == Stored::kDamaged) {
      env_.reached("tailwind/replica_unreadable");
      // Another backup has the same bytes.
      const auto place = static_cast<std::size_t>(fetch.part - work.parts.data());
      const std::size_t first = (place + 1) % fetch.part->backups.size();
      fetch.backup = (fetch.backup + 1) % fetch.part->backups.size();
      if (fetch.backup == first) {
        answer.lost_segment = fetch.part->segment;
        return false;
      }
      ask(work, fetch);
      ++under_way;
      continue;
    }
    if (got->next < fetch.part->valid) {
      fetch.from = got->next;
      ask(work, fetch);
      ++under_way;
    }
  }
  return last_ == Position() || log_.commit(worker_, last_, kForever);
}

RecoveryMaster::Stored RecoveryMaster::store(ByteView entries, RecoverAnswer& answer) {
  std::vector<Entry> batch;
  std::uint64_t objects = 0;
  for (std::size_t at = 0; at < entries.size();) {
    const Entry entry = read_entry(entries.subspan(at));
    if (!entry) return Stored::kDamaged;
    at += entry.size();
    objects += entry.type() == EntryType::kObject;
    batch.push_back(entry);
  }
  if (batch.empty()) return Stored::kAll;
  const auto replay = [&] {
    return log_.is_full_for_recovery() ? Position() : objects_.replay(batch);
  };
  std::optional<Position> end = replay();
  // The cleaner works. What it frees may go to clients' updates for good.
  const Time deadline = env_.now() + options_.call_timeout;
  while (end == Position() && log_.may_make_room(0) && !log_.is_deposed() &&
         env_.now() < deadline) {
    const Time next = env_.now() + options_.retry_pause;
    worker_.wait([&] { return env_.now() >= next; }, next);
    end = replay();
  }
  if (!end) return Stored::kDamaged;
  if (end == Position() || log_.is_deposed()) return Stored::kNoRoom;
  last_ = std::max(last_, *end);
  answer.bytes += entries.size();
  answer.objects += objects;
  return Stored::kAll;
}

}  // namespace pyrdma::tailwind
