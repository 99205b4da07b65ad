#include "env/sim/sim_storage.h"

#include "base/error.h"
#include "env/sim/disk_file.h"
#include "env/sim/sim_env.h"

namespace pyrdma {

class SimFile final : public File {
 public:
  SimFile(SimStorage& storage, std::shared_ptr<DiskFile> file)
      : storage_(storage), file_(std::move(file)) {}

  void write(std::uint64_t offset, std::span<const std::byte> data) override {
    file_->write(offset, data, storage_.faults_, storage_.is_full());
    storage_.take(storage_.env_.costs().storage_write, data.size());
  }
  std::size_t read(std::uint64_t offset, std::span<std::byte> data) override {
    const std::size_t count = file_->read(offset, data, storage_.faults_);
    if (count != 0) storage_.take(storage_.env_.costs().storage_write, count);
    return count;
  }
  void sync() override { storage_.sync(*file_); }
  std::uint64_t size() override { return file_->size(); }

 private:
  SimStorage& storage_;
  std::shared_ptr<DiskFile> file_;
};

std::unique_ptr<File> SimStorage::open(std::string_view name) {
  const std::string key = checked_file_name(name);
  if (const auto found = names_.find(key); found != names_.end())
    return std::make_unique<SimFile>(*this, found->second);
  auto file = std::make_shared<DiskFile>(key, pool_);
  change({{}, key, file});
  return std::make_unique<SimFile>(*this, std::move(file));
}

bool SimStorage::exists(std::string_view name) {
  return names_.find(checked_file_name(name)) != names_.end();
}

void SimStorage::remove(std::string_view name) {
  const std::string key = checked_file_name(name);
  if (names_.find(key) != names_.end()) change({key, {}, nullptr});
}

void SimStorage::rename(std::string_view from, std::string_view to) {
  const std::string key = checked_file_name(from), target = checked_file_name(to);
  const auto found = names_.find(key);
  if (found == names_.end())
    throw Error(ErrorCode::kUnavailable,
                "storage: cannot rename '" + key + "', which does not exist");
  if (key != target) change({key, target, found->second});
  take(env_.costs().storage_write, 0);
}

void SimStorage::apply(const NameChange& change, Names& names) {
  if (!change.from.empty()) names.erase(change.from);
  if (!change.to.empty()) names[change.to] = change.file;
}

void SimStorage::change(NameChange change) {
  apply(change, names_);
  changes_.push_back(std::move(change));
}

void SimStorage::take(Picos fixed, std::size_t bytes) {
  env_.charge(Cost::kSystemCall);
  SimScheduler& scheduler = env_.scheduler();
  free_at_ = std::max(free_at_, scheduler.clock()) +
             static_cast<Picos>(env_.costs().storage_picos_per_byte * static_cast<double>(bytes));
  scheduler.sleep_until(free_at_ + fixed);
}

bool SimStorage::is_full() const { return env_.scheduler().clock() < full_until_; }

void SimStorage::sync(DiskFile& file) {
  const std::uint64_t mark = file.mark();
  Picos time = env_.costs().storage_sync;
  if (faults_ != nullptr && faults_->fire(Fault::disk_slow)) {
    time += to_picos(faults_->duration(Fault::disk_slow));
    faults_->reach(Fault::disk_slow);
  }
  take(time, 0);
  if (faults_ != nullptr && faults_->fire(Fault::disk_io_error)) {
    file.sync_in_part(mark, *faults_);
    throw Error(ErrorCode::kUnavailable,
                "file '" + file.name() + "': a sync failed (I/O error); unsynced data may " +
                    "be lost; write it again",
                false);
  }
  if (faults_ != nullptr && faults_->fire(Fault::disk_lies)) return file.lie(mark);
  file.sync(mark);
}

void SimStorage::sync() {
  const std::size_t count = changes_.size();
  take(env_.costs().storage_sync, 0);
  // A sync of another thread may have been faster.
  for (std::size_t i = 0; i < count && !changes_.empty(); ++i) {
    apply(changes_.front(), durable_names_);
    changes_.pop_front();
  }
}

void SimStorage::crash(bool lose_unsynced) {
  free_at_ = 0;
  if (!lose_unsynced) return;
  // Metadata is journaled: some first changes survive.
  for (const NameChange& change : changes_) {
    if (faults_ == nullptr || !faults_->fire(Fault::disk_torn)) break;
    apply(change, durable_names_);
    faults_->reach(Fault::disk_torn);
  }
  changes_.clear();
  names_ = durable_names_;
  for (const auto& [name, file] : names_) file->crash(faults_);
}

void SimStorage::save() {
  changes_.clear();
  durable_names_ = names_;
  for (const auto& [name, file] : names_) file->sync(file->mark());
}

std::uint64_t SimStorage::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, file] : names_) bytes += file->size();
  return bytes;
}

void SimStorage::preserve(const std::string& name, std::span<const std::byte> data) {
  auto file = std::make_shared<DiskFile>(name, pool_);
  file->write(0, data, nullptr, false);
  file->sync(file->mark());
  names_[name] = durable_names_[name] = std::move(file);
}

}  // namespace pyrdma
