#include "systems/tailwind/backup/backup_service.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "systems/tailwind/backup/described.h"
#include "systems/tailwind/rpc/background.h"
#include "systems/tailwind/scopes.h"

namespace pyrdma::tailwind {

BackupService::BackupService(Env& env, fabric::ProtectionDomain& domain, const Options& options,
                             Bugs bugs)
    : env_(env),
      options_((keep_saved_memory(env.storage()), options)),
      bugs_(bugs),
      frames_(env.storage(), options.segment_bytes),
      pool_(env, domain, options.buffers, options.segment_bytes, bugs),
      disk_mutex_(env),
      mutex_(env) {
  for (const Frame& frame : frames_.find(problems_)) {
    const auto replica = std::make_shared<Replica>();
    replica->contents = {.log = frame.log,
                         .segment = frame.segment,
                         .attempt = frame.attempt,
                         .version = frame.version,
                         .is_closed = true,
                         .end = frame.valid,
                         .checksum = frame.checksum,
                         .entries = frame.entries};
    replica->may_have_file = replica->is_inherited = true;
    replicas_.emplace(replica->name(), replica);
  }
  may_have_more_ = frames_.has_unread();
  take_over_all();
  thread_ = env.spawn(
      "tailwind/flusher", [this] { run_jobs(); }, background_core(env, options.workers));
}

BackupService::~BackupService() {
  is_stopping_.store(true, std::memory_order_release);
  env_.notify(watch_);
  thread_.reset();
}

// The latest failure first: what an earlier one has of the same replica is older or the same.
void BackupService::take_over_all() {
  Storage& storage = env_.storage();
  const std::vector<SavedMemory> all =
      find_saved_buffers(storage, options_.segment_bytes, problems_);
  saved_.resize(all.size());
  for (std::size_t failure = all.size(); failure-- > 0;) {
    bool has_all = all[failure].has_all;
    for (const SavedBuffer& saved : all[failure].buffers)
      has_all = take_over(saved, failure) && has_all;
    if (!has_all) ++saved_[failure];  // for a later start
    may_have_more_ = may_have_more_ || !has_all;
    if (!bugs_.keeps_saved_memory() && has_all) remove_saved_memory(storage, failure);
  }
  remove_saved_later();
}

bool BackupService::take_over(const SavedBuffer& saved, std::size_t failure) {
  const BufferContents& contents = saved.contents;
  const auto known = replicas_.find({contents.log, contents.segment});
  if (known != replicas_.end() && known->second->contents.attempt >= contents.attempt) return true;
  const std::string what = described(contents.log, contents.segment);
  const auto buffer = pool_.take();
  if (!buffer) {
    problems_.push_back(what + ", saved by the battery, is not used: all " +
                        std::to_string(options_.buffers) + " buffers are in use; start with more");
    return false;
  }
  try {
    const std::span data(pool_.region(*buffer)->data(), options_.segment_bytes);
    env_.storage().open(saved.file)->read(0, data);
  } catch (const Error& error) {
    problems_.push_back(what + ", saved by the battery, is not used: " + error.what());
    renew_later(*buffer);
    return false;
  }
  const auto replica = std::make_shared<Replica>();
  replica->contents = contents;
  replica->is_inherited = true;
  replica->buffer = buffer;
  replica->saved_in.push_back(failure);
  ++saved_[failure];
  ++unflushed_;
  install(replica);
  if (contents.is_closed) add_job({Work::kFlush, replica, 0, {}});
  return true;
}

// ---- requests of primaries ----

BackupService::Found BackupService::find(ServerId primary, const ReplicaName& name) {
  if (dead_.contains(primary)) return {BackupStatus::kRefused, nullptr};
  const auto found = replicas_.find({primary.number(), name.segment});
  if (found == replicas_.end() || found->second->contents.attempt != name.attempt) return {};
  return {BackupStatus::kOk, found->second};
}

/// The answer to an open that makes no replica.
std::optional<OpenAnswer> BackupService::known_answer(ServerId primary,
                                                      const OpenRequest& request) {
  if (dead_.contains(primary)) return OpenAnswer{BackupStatus::kRefused, {}};
  if (request.data.size() > options_.segment_bytes)
    return OpenAnswer{BackupStatus::kOutOfBounds, {}};
  const Name name{primary.number(), request.name.segment};
  const auto freed = freed_.find(name);
  if (freed != freed_.end() && request.name.attempt <= freed->second)
    return OpenAnswer{BackupStatus::kUnknown, {}};
  const auto found = replicas_.find(name);
  if (found == replicas_.end()) return std::nullopt;
  const Replica& replica = *found->second;
  if (request.name.attempt > replica.contents.attempt) return std::nullopt;
  if (request.name.attempt < replica.contents.attempt || replica.contents.is_closed)
    return OpenAnswer{BackupStatus::kUnknown, {}};
  return OpenAnswer{BackupStatus::kOk, pool_.remote(*replica.buffer)};
}

/// Whether the disk could take another replica with the name on battery power.
bool BackupService::admits_another(const Name& name) const {
  const auto replaced = replicas_.find(name);
  const bool gets_free = replaced != replicas_.end() && replaced->second->buffer;
  const std::uint64_t after = unflushed_ + 1 - (gets_free ? 1 : 0);
  return after * options_.segment_bytes <= options_.flushable_bytes;
}

OpenAnswer BackupService::open(ServerId primary, const OpenRequest& request) {
  const Name name{primary.number(), request.name.segment};
  const auto replica = std::make_shared<Replica>();
  BufferContents& contents = replica->contents;
  contents.log = name.first;
  contents.segment = name.second;
  contents.attempt = request.name.attempt;
  contents.version = request.version;
  contents.is_copy = request.is_copy;
  contents.is_written_by_cpu = request.is_written_by_cpu;
  std::byte* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto answer = known_answer(primary, request)) return *answer;
    replica->buffer = admits_another(name) ? pool_.take() : std::nullopt;
    if (!replica->buffer) {
      ++counters_.refused;
      return {BackupStatus::kNoBuffer, {}};
    }
    ++unflushed_;
    data = pool_.region(*replica->buffer)->data();
  }
  if (!request.data.empty()) std::memcpy(data, request.data.data(), request.data.size());
  env_.charge_copy(request.data.size(), &pool_.footprint());
  contents.written = static_cast<std::uint32_t>(request.data.size());

  const std::lock_guard lock(mutex_);
  if (const auto answer = known_answer(primary, request)) {  // another request was faster
    retire(*replica);
    return *answer;
  }
  install(replica);
  ++counters_.opens;
  return {BackupStatus::kOk, pool_.remote(*replica->buffer)};
}

/// Puts a replica with a buffer in its place. One that was there is gone; its files stay until the
/// new one's is there.
void BackupService::install(std::shared_ptr<Replica> replica) {
  pool_.describe(*replica->buffer, replica->contents);
  std::shared_ptr<Replica>& place = replicas_[replica->name()];
  if (place != nullptr) {
    replica->may_have_file = place->may_have_file;
    const std::vector<std::size_t> older = std::exchange(place->saved_in, {});
    replica->saved_in.insert(replica->saved_in.end(), older.begin(), older.end());
    retire(*place);
  }
  place = std::move(replica);
}

void BackupService::retire(Replica& replica) {
  replica.is_gone = true;
  if (!replica.buffer) return;
  pool_.clear(*replica.buffer);
  renew_later(*replica.buffer);
  replica.buffer.reset();
  --unflushed_;
}

void BackupService::retire_with_file(Replica& replica) {
  retire(replica);
  if (replica.may_have_file) add_job({Work::kRemove, nullptr, 0, replica.name()});
  std::erase_if(loaded_, [&](const auto& loaded) { return loaded.first == replica.name(); });
  leave_saved(replica);
}

void BackupService::leave_saved(Replica& replica) {
  for (const std::size_t failure : replica.saved_in) --saved_[failure];
  if (!std::exchange(replica.saved_in, {}).empty()) remove_saved_later();
}

void BackupService::remove_saved_later() {
  if (!saved_.empty() && saved_.back() == 0) add_job({Work::kRemoveSaved, nullptr, 0, {}});
}

BackupStatus BackupService::write(ServerId primary, const BackupWriteRequest& request) {
  const Scope step(env_, scope::copy_to_buffer);
  const std::uint64_t end = std::uint64_t{request.offset} + request.data.size();
  Found found;
  std::shared_ptr<fabric::MemoryRegion> region;
  const auto is_writable = [&] {
    return found.status == BackupStatus::kOk && found.replica->contents.is_written_by_cpu &&
           !found.replica->contents.is_closed;
  };
  const auto refusal = [&] {
    return found.status == BackupStatus::kOk ? BackupStatus::kUnknown : found.status;
  };
  {
    const std::lock_guard lock(mutex_);
    found = find(primary, request.name);
    if (!is_writable()) return refusal();
    if (end > options_.segment_bytes) return BackupStatus::kOutOfBounds;
    region = pool_.region(*found.replica->buffer);
  }
  if (!request.data.empty())
    std::memcpy(region->data() + request.offset, request.data.data(), request.data.size());
  env_.charge_copy(request.data.size(), &pool_.footprint());

  const std::lock_guard lock(mutex_);
  found = find(primary, request.name);
  if (!is_writable()) return refusal();
  Replica& replica = *found.replica;
  std::uint32_t& furthest = replica.ahead[request.offset];
  furthest = std::max(furthest, static_cast<std::uint32_t>(end));
  std::uint32_t& written = replica.contents.written;
  while (!replica.ahead.empty() && replica.ahead.begin()->first <= written) {
    written = std::max(written, replica.ahead.begin()->second);
    replica.ahead.erase(replica.ahead.begin());
  }
  pool_.describe(*replica.buffer, replica.contents);
  return BackupStatus::kOk;
}

BackupStatus BackupService::set_version(ServerId primary, const SetVersionRequest& request) {
  const std::lock_guard lock(mutex_);
  const Found found = find(primary, request.name);
  if (found.status != BackupStatus::kOk) return found.status;
  Replica& replica = *found.replica;
  if (request.version < replica.contents.version) return BackupStatus::kOk;
  replica.contents.version = request.version;
  replica.contents.is_copy = false;
  if (replica.buffer) pool_.describe(*replica.buffer, replica.contents);
  return BackupStatus::kOk;
}

BackupStatus BackupService::close(ServerId primary, const CloseRequest& request) {
  const std::lock_guard lock(mutex_);
  const Found found = find(primary, request.name);
  if (found.status != BackupStatus::kOk) return found.status;
  BufferContents& contents = found.replica->contents;
  if (contents.is_closed) {
    const bool is_same = contents.end == request.end && contents.checksum == request.checksum &&
                         contents.entries == request.entries;
    return is_same ? BackupStatus::kOk : BackupStatus::kOutOfBounds;
  }
  if (request.end > (contents.is_written_by_cpu ? contents.written : options_.segment_bytes))
    return BackupStatus::kOutOfBounds;
  contents.is_closed = true;
  contents.is_copy = false;
  contents.end = request.end;
  contents.checksum = request.checksum;
  contents.entries = request.entries;
  pool_.describe(*found.replica->buffer, contents);
  ++counters_.closes;
  add_job({Work::kFlush, found.replica, 0, {}});
  return BackupStatus::kOk;
}

BackupStatus BackupService::free(ServerId primary, const ReplicaName& name) {
  const std::lock_guard lock(mutex_);
  if (dead_.contains(primary)) return BackupStatus::kRefused;
  const Name key{primary.number(), name.segment};
  std::uint64_t& freed = freed_[key];
  freed = std::max(freed, name.attempt);
  const auto found = replicas_.find(key);
  if (found == replicas_.end() || found->second->contents.attempt > name.attempt)
    return BackupStatus::kUnknown;
  retire_with_file(*found->second);
  replicas_.erase(found);
  return BackupStatus::kOk;
}

// ---- what it has ----

template <class Which>
std::vector<std::uint64_t> BackupService::logs_of(Which&& which) {
  std::vector<std::uint64_t> logs;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, replica] : replicas_)
    if (which(*replica) && (logs.empty() || logs.back() != name.first)) logs.push_back(name.first);
  return logs;
}

std::vector<std::uint64_t> BackupService::logs() {
  return logs_of([](const Replica&) { return true; });
}

std::vector<std::uint64_t> BackupService::inherited_logs() {
  return logs_of([](const Replica& replica) { return replica.is_inherited; });
}

std::uint64_t BackupService::replicas(ServerId primary) {
  return replicas_of(primary.number()).size();
}

BackupCounters BackupService::counters() {
  const std::lock_guard lock(mutex_);
  BackupCounters counters = counters_;
  counters.unflushed = unflushed_;
  return counters;
}

std::vector<BackupService::Damaged> BackupService::take_damaged() {
  const std::lock_guard lock(mutex_);
  return std::exchange(damaged_, {});
}

void BackupService::add_problem(const std::string& problem) {
  if (std::ranges::find(problems_, problem) == problems_.end()) problems_.push_back(problem);
}

std::vector<std::string> BackupService::problems() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> problems = problems_;
  for (const auto& [what, problem] : failing_) problems.push_back(problem);
  return problems;
}

}  // namespace pyrdma::tailwind
