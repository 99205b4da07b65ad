// The thread of a server that cleans its log. It sleeps while there is nothing to do, and while it
// waits for backups.
#pragma once
#include <atomic>
#include <memory>

#include "systems/tailwind/bugs.h"
#include "systems/tailwind/options.h"
#include "systems/tailwind/replication/primary_log.h"
#include "systems/tailwind/store/cleaner.h"
#include "systems/tailwind/store/object_manager.h"

namespace pyrdma::tailwind {

class LogCleaner {
 public:
  /// Starts the thread if options.cleaner is on. All outlive it.
  LogCleaner(Env& env, const Options& options, PrimaryLog& log, ObjectManager& objects,
             Bugs bugs = {});
  /// A job under way does not end: nobody may use the store any more.
  ~LogCleaner();
  LogCleaner(const LogCleaner&) = delete;
  LogCleaner& operator=(const LogCleaner&) = delete;

 private:
  void run();
  bool turn();

  Env& env_;
  const Options& options_;
  PrimaryLog& log_;
  Cleaner cleaner_;
  std::atomic<bool> is_stopping_{false};
  std::unique_ptr<Thread> thread_;  // last
};

}  // namespace pyrdma::tailwind
