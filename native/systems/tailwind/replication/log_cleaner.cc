#include "systems/tailwind/replication/log_cleaner.h"

#include "systems/tailwind/rpc/background.h"

namespace pyrdma::tailwind {

LogCleaner::LogCleaner(Env& env, const Options& options, PrimaryLog& log, ObjectManager& objects,
                       Bugs bugs)
    : env_(env), options_(options), log_(log), cleaner_(log, objects, bugs) {
  if (options.cleaner)
    thread_ = env.spawn(
        "tailwind/cleaner", [this] { run(); }, background_core(env, options.workers));
}

LogCleaner::~LogCleaner() {
  is_stopping_.store(true, std::memory_order_release);
  log_.end_cleaning();
}

void LogCleaner::run() {
  while (!is_stopping_.load(std::memory_order_acquire) && !log_.is_deposed()) {
    if (!turn()) env_.sleep_until(env_.now() + options_.retry_pause);
  }
}

// Returns false when there is nothing to do.
bool LogCleaner::turn() {
  const MemoryUse before = log_.memory_use();
  if (cleaner_.is_idle()) {
    if (!needs_cleaning(before, options_.clean_below) || log_.has_nothing_to_clean()) return false;
    const CleaningJob job =
        choose_job(log_.candidates(), before, log_.end().segment, options_.segment_bytes);
    if (job.compaction) {
      cleaner_.compact(*job.compaction);
    } else if (!job.cleaning.empty()) {
      cleaner_.clean(job.cleaning);
    } else {
      if (log_.give_up_head()) return true;
      log_.note_nothing_to_clean(before.drops);
      return false;
    }
  }
  if (cleaner_.run()) return true;
  log_.note_nothing_to_clean(before.drops);  // without memory, until something is dropped
  return false;
}

}  // namespace pyrdma::tailwind
