// The thread of a backup: it writes closed replicas to disk, makes their buffers anew, and removes
// files.
#include <mutex>
#include <utility>

#include "base/error.h"
#include "systems/tailwind/backup/backup_service.h"
#include "systems/tailwind/backup/described.h"
#include "systems/tailwind/rpc/background.h"

namespace pyrdma::tailwind {

void BackupService::add_job(Job job) {
  (job.work == Work::kRenew   ? renewals_
   : job.work == Work::kFlush ? flushes_
                              : removals_)
      .push_back(std::move(job));
  count_waiting();
  env_.notify(watch_);
}

void BackupService::count_waiting() {
  waiting_.store(static_cast<std::uint32_t>(renewals_.size() + flushes_.size() + removals_.size()),
                 std::memory_order_release);
}

void BackupService::renew_later(std::uint32_t buffer) {
  add_job({Work::kRenew, nullptr, buffer, {}});
}

// Opens wait for buffers that are to be made anew, and that takes no time of the disk. Then they
// wait for flushes, and nobody waits for removals: these come when there is nothing else, or when
// they are many. What has failed is due after a pause, however much else waits.
std::optional<BackupService::Job> BackupService::next_job() {
  const Time now = env_.now();
  const std::lock_guard lock(mutex_);
  const bool is_due = !failed_.empty() && now >= retry_at_;
  const bool is_flush_next = !flushes_.empty() && removals_.size() < kMostRemovals;
  std::deque<Job>& from = !renewals_.empty() ? renewals_
                          : is_due           ? failed_
                          : is_flush_next    ? flushes_
                                             : removals_;
  if (from.empty()) return std::nullopt;
  Job job = std::move(from.front());
  from.pop_front();
  count_waiting();
  return job;
}

void BackupService::run_jobs() {
  const auto is_called = [this] {
    return waiting_.load(std::memory_order_acquire) != 0 ||
           is_stopping_.load(std::memory_order_acquire);
  };
  while (true) {
    wait_quietly(env_, is_called, retry_at_, watch_, options_.idle_after, options_.retry_pause);
    if (is_stopping_.load(std::memory_order_acquire)) return;
    if (const auto job = next_job()) run(*job);
  }
}

void BackupService::run(const Job& job) {
  std::string what;
  switch (job.work) {
    case Work::kFlush:
      what = "flushing " + described(job.replica->contents.log, job.replica->contents.segment);
      break;
    case Work::kRenew:
      what = "making buffer " + std::to_string(job.buffer) + " anew";
      break;
    case Work::kRemove:
      what = "removing " + described(job.name.first, job.name.second);
      break;
    case Work::kRemoveSaved:
      what = "removing saved memory";
      break;
  }
  try {
    switch (job.work) {
      case Work::kFlush:
        flush(*job.replica);
        break;
      case Work::kRenew:
        renew(job.buffer);
        break;
      case Work::kRemove:
        remove_files(job.name);
        break;
      case Work::kRemoveSaved:
        remove_saved();
        break;
    }
    const std::lock_guard lock(mutex_);
    failing_.erase(what);
    if (failed_.empty()) retry_at_ = kForever;
  } catch (const Error& error) {
    const Time now = env_.now();
    const std::lock_guard lock(mutex_);
    failing_[what] = what + " fails, and is tried again: " + error.what();
    failed_.push_back(job);
    retry_at_ = now + options_.retry_pause;
  }
}

void BackupService::flush(Replica& replica) {
  Frame frame;
  std::shared_ptr<fabric::MemoryRegion> region;
  {
    const std::lock_guard lock(mutex_);
    if (replica.is_gone) return;
    replica.may_have_file = true;
    const BufferContents& contents = replica.contents;
    frame = {contents.log, contents.segment, contents.attempt, contents.version,
             contents.end, contents.entries, contents.checksum};
    region = pool_.region(*replica.buffer);
  }
  // The close came on another connection than the data, which may become visible later.
  const ByteView data(region->data(), frame.valid);
  Scan found;
  const auto is_there = [&] {
    found = scan(data);
    const bool is_whole = found.valid == frame.valid && found.checksum == frame.checksum &&
                          found.entries == frame.entries;
    if (!is_whole) env_.reached("tailwind/data_behind_close");
    return is_whole;
  };
  if (bugs_.awaits_data() && !env_.poll_until(is_there, env_.now() + kMillisecond))
    return leave_damaged(replica, found);
  frames_.write(frame, data);
  region.reset();
  const std::lock_guard lock(mutex_);
  ++counters_.flushes;
  counters_.bytes += frame.valid;
  leave_saved(replica);
  if (replica.is_gone) return;  // its buffer is dealt with, and its file will be
  pool_.clear(*replica.buffer);
  renew_later(*replica.buffer);
  replica.buffer.reset();
  --unflushed_;
}

// What is not whole is of no use on the disk, and its primary still has the bytes.
void BackupService::leave_damaged(const Replica& replica, const Scan& found) {
  env_.reached("tailwind/damaged_before_flush");
  const BufferContents& contents = replica.contents;
  const std::lock_guard lock(mutex_);
  if (replica.is_gone) return;
  ++counters_.damaged;
  add_problem(described(contents.log, contents.segment) + ": its buffer is damaged: valid are " +
              std::to_string(found.valid) + " of " + std::to_string(contents.end) +
              " B; the replica is not used");
  damaged_.push_back({ServerId::of(contents.log), {contents.segment, contents.attempt}});
}

void BackupService::renew(std::uint32_t buffer) {
  pool_.renew(buffer);
  env_.charge_copy(options_.segment_bytes, &pool_.footprint());
  const std::lock_guard lock(mutex_);
  pool_.give_back(buffer);
  ++counters_.zeroed;
}

// All that wait go with one sync of the disk. A name that was opened again stays: the file goes
// with that replica.
void BackupService::remove_files(const Name& first) {
  std::vector<Name> names{first};
  {
    const std::lock_guard lock(mutex_);
    while (!removals_.empty() && removals_.front().work == Work::kRemove) {
      names.push_back(removals_.front().name);
      removals_.pop_front();
    }
    count_waiting();
    std::erase_if(names, [&](const Name& name) {
      const auto found = replicas_.find(name);
      if (found == replicas_.end()) return false;
      found->second->may_have_file = true;
      return true;
    });
  }
  try {
    frames_.remove(names);
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    for (const Name& name : names)
      if (name != first) removals_.push_back({Work::kRemove, nullptr, 0, name});
    count_waiting();
    throw;
  }
}

// One failure after the other, from the latest on: see remove_saved_memory().
void BackupService::remove_saved() {
  std::unique_lock lock(mutex_);
  while (!saved_.empty() && saved_.back() == 0) {
    const std::size_t failure = saved_.size() - 1;
    lock.unlock();
    remove_saved_memory(env_.storage(), failure);
    lock.lock();
    saved_.pop_back();
  }
}

}  // namespace pyrdma::tailwind
