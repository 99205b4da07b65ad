// The work of a recovery master: it fetches the entries of its tablets from the backups of the dead
// server, and stores them as its own (RAMCloud's recovery, Ongaro et al., SOSP 2011). Several
// replicas are under way at once. The order does not matter: the newest version of a key wins.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "systems/tailwind/backup/backup_service.h"
#include "systems/tailwind/replication/primary_log.h"
#include "systems/tailwind/rpc/dispatcher.h"
#include "systems/tailwind/store/object_manager.h"

namespace pyrdma::tailwind {

/// One use, by the worker that serves the request.
class RecoveryMaster {
 public:
  RecoveryMaster(Worker& worker, Transport& transport, const Options& options,
                 BackupService& backup, ObjectManager& objects, PrimaryLog& log);

  /// Returns true when all parts are stored and committed. Otherwise answer.lost_segment names a
  /// segment that no backup gave, or is 0 when the log was full or the server is taken for dead.
  bool run(const RecoverRequest& work, RecoverAnswer& answer);

 private:
  static constexpr std::uint32_t kUnderWay = 8;  // requests
  struct Fetch {
    const RecoverRequest::Part* part = nullptr;
    std::size_t backup = 0;  // of the part's
    std::uint32_t from = 0;
  };
  struct Arrived {
    Fetch fetch;
    bool has_answer = false;
    Bytes answer;
  };
  /// What callbacks share with the worker; they may come after the worker has given up.
  struct Shared {
    explicit Shared(Env& env) : mutex(env) {}
    Mutex mutex;
    Watch watch;
    std::deque<Arrived> arrived;
    std::atomic<std::uint32_t> count{0};  // of arrived
  };
  void ask(const RecoverRequest& work, const Fetch& fetch);
  enum class Stored : std::uint8_t { kAll, kNoRoom, kDamaged };
  Stored store(ByteView entries, RecoverAnswer& answer);

  Worker& worker_;
  Transport& transport_;
  Env& env_;
  const Options& options_;
  BackupService& backup_;  // of this server
  ObjectManager& objects_;
  PrimaryLog& log_;
  Position last_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace pyrdma::tailwind
