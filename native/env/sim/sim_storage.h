// The simulated disk of a node: files in memory with the latencies of the profile. A power failure
// loses data that was not synced. The disk fails as the fault model F24 says. Without a FaultStream
// nothing fails, but a power failure still loses data that was not synced.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "env/faults.h"
#include "env/sim/disk_blocks.h"
#include "env/sim/scheduler.h"
#include "env/storage.h"

namespace pyrdma {

class DiskFile;
class SimEnv;

class SimStorage final : public Storage {
 public:
  explicit SimStorage(SimEnv& env) : env_(env) {}
  std::unique_ptr<File> open(std::string_view name) override;
  bool exists(std::string_view name) override;
  void remove(std::string_view name) override;
  void rename(std::string_view from, std::string_view to) override;
  void sync() override;

  /// Equal blocks of all disks with one pool are kept once.
  void share_blocks(std::shared_ptr<BlockPool> pool) { pool_ = std::move(pool); }
  /// Sets the source of faults; null means no faults.
  void set_faults(FaultStream* faults) { faults_ = faults; }
  /// Until `when`, or a later moment set before, writes that grow a file find no space. 0: they
  /// find space again.
  void set_full_until(Picos when) { full_until_ = when == 0 ? 0 : std::max(full_until_, when); }
  /// The node has ended. The end of a process leaves its files as they are. A power failure loses
  /// data that was not synced. Names whose change was not synced are as before the change, or some
  /// of the changes survive.
  void crash(bool lose_unsynced);
  /// A battery has saved all data, so all of it is durable.
  void save();
  /// A battery has saved memory too: `data` becomes the file `name` and replaces a file of that
  /// name.
  void preserve(const std::string& name, std::span<const std::byte> data);

  std::size_t files() const { return names_.size(); }
  /// Of all files together.
  std::uint64_t bytes() const;

 private:
  friend class SimFile;
  using Names = std::map<std::string, std::shared_ptr<DiskFile>, std::less<>>;
  struct NameChange {
    std::string from, to;  // from empty: created; to empty: removed
    std::shared_ptr<DiskFile> file;
  };
  static void apply(const NameChange& change, Names& names);
  void change(NameChange change);
  /// The thread sleeps until the disk has moved `bytes` bytes, after those of all earlier requests,
  /// and `fixed` has passed. The fixed times of requests overlap.
  void take(Picos fixed, std::size_t bytes);
  bool is_full() const;
  /// Sleeps, then makes the earlier writes of the file durable, unless a fault prevents it.
  void sync(DiskFile& file);

  SimEnv& env_;
  FaultStream* faults_ = nullptr;
  Picos full_until_ = 0;
  Picos free_at_ = 0;  // the disk has moved the bytes of all requests
  std::shared_ptr<BlockPool> pool_ = std::make_shared<BlockPool>();
  Names names_, durable_names_;
  std::deque<NameChange> changes_;  // not durable
};

}  // namespace pyrdma
