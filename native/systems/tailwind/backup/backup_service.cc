#include "systems/tailwind/backup/backup_service.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "systems/tailwind/log/log.h"
#include "systems/tailwind/log/scan.h"

namespace pyrdma::tailwind {

namespace {

/// The second entry of a segment, if the valid bytes have it.
std::optional<std::vector<std::uint64_t>> digest_in(ByteView bytes) {
  std::optional<std::vector<std::uint64_t>> digest;
  std::size_t number = 0;
  for_entries(bytes, bytes.size(), [&](const Entry& entry, std::uint64_t) {
    if (number++ == 1) digest = read_digest(entry);
  });
  return digest;
}

/// A recovery of the tablets needs the entry, which ends at `end` of its segment.
bool is_wanted(const Entry& entry, Position end, const std::vector<Tablet>& tablets) {
  std::uint64_t table = entry.table(), hash = 0;
  switch (entry.type()) {
    case EntryType::kNone:
    case EntryType::kSegment:
    case EntryType::kDigest:
    case EntryType::kChecksum:
      return false;
    case EntryType::kObject:
    case EntryType::kTombstone:
      hash = key_hash(table, entry.key());
      break;
    case EntryType::kResult: {  // its contents begin with the table and the key's hash
      ByteReader in(entry.contents());
      table = in.get<std::uint64_t>();
      hash = in.get<std::uint64_t>();
      if (!in.ok()) return false;
      break;
    }
  }
  return std::ranges::any_of(tablets, [&](const Tablet& tablet) {
    return tablet.range.has(table, hash) && end > tablet.since;
  });
}

std::string described(std::uint64_t log, std::uint64_t segment) {
  return "segment " + std::to_string(segment) + " of the log of " + to_string(ServerId::of(log));
}

}  // namespace

BackupService::BackupService(Env& env, fabric::ProtectionDomain& domain, const Options& options,
                             Bugs bugs)
    : env_(env),
      options_(options),
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
    replica->may_have_file = true;
    replicas_.emplace(replica->name(), replica);
  }
  take_over(problems_);
  remove_saved_memory(env.storage());
  thread_ = env.spawn("tailwind/flusher", [this] { run_jobs(); });
}

BackupService::~BackupService() {
  is_stopping_.store(true, std::memory_order_release);
  env_.notify(watch_);
  thread_.reset();
}

void BackupService::take_over(std::vector<std::string>& problems) {
  Storage& storage = env_.storage();
  for (const SavedBuffer& saved : find_saved_buffers(storage, options_.segment_bytes, problems)) {
    const BufferContents& contents = saved.contents;
    const auto known = replicas_.find({contents.log, contents.segment});
    if (known != replicas_.end() && known->second->contents.attempt >= contents.attempt) continue;
    const std::string what = described(contents.log, contents.segment);
    const auto buffer = pool_.take();
    if (!buffer) {
      problems.push_back(what + ", saved by the battery, is not used: all " +
                         std::to_string(options_.buffers) + " buffers are in use; start with more");
      continue;
    }
    try {
      const std::span data(pool_.region(*buffer)->data(), options_.segment_bytes);
      storage.open(saved.file)->read(0, data);
    } catch (const Error& error) {
      problems.push_back(what + ", saved by the battery, is not used: " + error.what());
      renew_later(*buffer);
      continue;
    }
    const auto replica = std::make_shared<Replica>();
    replica->contents = contents;
    replica->buffer = buffer;
    ++unflushed_;
    install(replica);
    if (contents.is_closed) add_job({Work::kFlush, replica, 0, {}});
  }
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

/// Puts a replica with a buffer in its place. One that was there is gone; its file stays until the
/// new one's is there.
void BackupService::install(std::shared_ptr<Replica> replica) {
  pool_.describe(*replica->buffer, replica->contents);
  std::shared_ptr<Replica>& place = replicas_[replica->name()];
  if (place != nullptr) {
    replica->may_have_file = place->may_have_file;
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
}

BackupStatus BackupService::write(ServerId primary, const BackupWriteRequest& request) {
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

// ---- recovery ----

void BackupService::stop_writes(ServerId dead) {
  const std::lock_guard lock(mutex_);
  dead_.insert(dead);
}

std::vector<std::shared_ptr<BackupService::Replica>> BackupService::replicas_of(std::uint64_t log) {
  std::vector<std::shared_ptr<Replica>> held;
  const std::lock_guard lock(mutex_);
  for (auto at = replicas_.lower_bound({log, 0}); at != replicas_.end() && at->first.first == log;
       ++at)
    held.push_back(at->second);
  return held;
}

BackupService::View BackupService::view(Replica& replica, bool needs_bytes) {
  View view;
  std::optional<Scan> found;
  {
    const std::lock_guard lock(mutex_);
    view.contents = replica.contents;
    if (replica.buffer) view.region = pool_.region(*replica.buffer);
    found = replica.scanned;
  }
  const BufferContents& contents = view.contents;
  view.valid = contents.is_closed ? contents.end : contents.written;
  view.entries = contents.entries;
  if (view.region == nullptr) {
    if (!contents.is_closed) return view;  // freed meanwhile
    view.is_usable = true;
    if (needs_bytes) view.loaded = load(replica.name(), contents.attempt);
    if (needs_bytes) view.is_usable = view.loaded != nullptr;
    if (view.loaded != nullptr) view.bytes = view.loaded->data;
    return view;
  }
  view.is_usable = true;
  const ByteView all(view.region->data(), options_.segment_bytes);
  if (contents.is_written_by_cpu && !contents.is_closed) {
    for_entries(all, view.valid, [&](const Entry&, std::uint64_t) { ++view.entries; });
    view.bytes = all.first(view.valid);
    return view;
  }
  if (!found) {
    found = scan(contents.is_closed ? all.first(contents.end) : all);
    env_.charge_copy(found->valid, &pool_.footprint());
    const std::lock_guard lock(mutex_);
    if (dead_.contains(ServerId::of(contents.log))) replica.scanned = found;
  }
  if (!contents.is_closed) {
    view.valid = static_cast<std::uint32_t>(found->valid);
    view.entries = static_cast<std::uint32_t>(found->entries);
  } else if (found->valid != contents.end || found->checksum != contents.checksum ||
             found->entries != contents.entries) {
    view.is_usable = false;
    const std::lock_guard lock(mutex_);
    add_problem(described(contents.log, contents.segment) + ": its buffer is damaged: valid are " +
                std::to_string(found->valid) + " of " + std::to_string(contents.end) +
                " B; the replica is not used");
  }
  view.bytes = all.first(view.valid);
  return view;
}

std::shared_ptr<const Frames::Loaded> BackupService::load(const Name& name, std::uint64_t attempt) {
  const std::lock_guard one_at_a_time(disk_mutex_);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [of, loaded] : loaded_) {
      if (of == name && loaded->frame.attempt == attempt) return loaded;
    }
  }
  const auto loaded = std::make_shared<Frames::Loaded>(frames_.read(name.first, name.second));
  const std::lock_guard lock(mutex_);
  if (!loaded->problem.empty()) {
    if (replicas_.contains(name)) add_problem(loaded->problem);
    return nullptr;
  }
  if (loaded->frame.attempt != attempt) return nullptr;
  loaded_.emplace_back(name, loaded);
  if (loaded_.size() > kLoadedReplicas) loaded_.pop_front();
  return loaded;
}

Inventory BackupService::start_reading(ServerId dead) {
  stop_writes(dead);
  Inventory inventory;
  bool has_newest_closed = false;
  const auto held = replicas_of(dead.number());
  for (auto at = held.rbegin(); at != held.rend(); ++at) {
    const View found = view(**at, !has_newest_closed);
    const bool is_closed = found.contents.is_closed;
    if (!found.is_usable) continue;
    const bool wants_digest = !is_closed || !has_newest_closed;
    has_newest_closed = has_newest_closed || is_closed;
    HeldReplica& replica = inventory.replicas.emplace_back();
    replica.segment = found.contents.segment;
    replica.version = found.contents.version;
    replica.is_closed = is_closed;
    replica.is_copy = found.contents.is_copy;
    replica.valid = found.valid;
    replica.entries = found.entries;
    if (wants_digest) replica.digest = digest_in(found.bytes);
  }
  return inventory;
}

ReadReplicaAnswer BackupService::read_replica(const ReadReplicaRequest& request, Bytes& storage) {
  storage.clear();
  const Name name{request.dead.number(), request.segment};
  std::shared_ptr<Replica> replica;
  {
    const std::lock_guard lock(mutex_);
    const auto found = replicas_.find(name);
    if (found == replicas_.end()) return {};
    replica = found->second;
  }
  const View found = view(*replica, true);
  if (!found.is_usable) return {};
  if (request.valid > found.valid || request.from > request.valid)
    return {BackupStatus::kOutOfBounds, 0, {}};

  const ByteView bytes = found.bytes.first(request.valid);
  std::uint32_t at = request.from;
  while (at < request.valid) {
    const ByteView rest = bytes.subspan(at);
    if (read_checksum(rest) != 0) {
      at += static_cast<std::uint32_t>(sizeof(ChecksumEntry));
      continue;
    }
    const Entry entry = read_entry(rest);
    const std::uint32_t end = entry ? at + static_cast<std::uint32_t>(entry.size()) : at;
    const bool is_needed = entry && is_wanted(entry, {request.segment, end}, request.tablets);
    if (!entry || (is_needed && !entry.is_whole())) {
      storage.clear();
      const std::lock_guard lock(mutex_);
      add_problem(described(name.first, name.second) + ": no whole entry at byte " +
                  std::to_string(at) + "; the replica is damaged, or the request is");
      return {};
    }
    if (is_needed) {
      if (!storage.empty() && storage.size() + entry.size() > kMostAnswer) break;
      storage.insert(storage.end(), rest.begin(),
                     rest.begin() + static_cast<std::ptrdiff_t>(entry.size()));
    }
    at = end;
  }
  env_.charge_copy(storage.size(), &pool_.footprint());
  return {BackupStatus::kOk, at, storage};
}

void BackupService::forget(ServerId dead) {
  const std::uint64_t log = dead.number();
  const std::lock_guard lock(mutex_);
  const auto first = replicas_.lower_bound({log, 0});
  auto last = first;
  for (; last != replicas_.end() && last->first.first == log; ++last)
    retire_with_file(*last->second);
  replicas_.erase(first, last);
  std::erase_if(freed_, [&](const auto& freed) { return freed.first.first == log; });
}

// ---- the service's own thread ----

void BackupService::add_job(Job job) {
  jobs_.push_back(std::move(job));
  waiting_.store(static_cast<std::uint32_t>(jobs_.size()), std::memory_order_release);
  env_.notify(watch_);
}

void BackupService::renew_later(std::uint32_t buffer) {
  add_job({Work::kRenew, nullptr, buffer, {}});
}

void BackupService::add_problem(const std::string& problem) {
  if (std::ranges::find(problems_, problem) == problems_.end()) problems_.push_back(problem);
}

std::optional<BackupService::Job> BackupService::next_job() {
  const Time now = env_.now();
  const std::lock_guard lock(mutex_);
  std::deque<Job>& from = jobs_.empty() && now >= retry_at_ ? failed_ : jobs_;
  if (from.empty()) return std::nullopt;
  Job job = std::move(from.front());
  from.pop_front();
  waiting_.store(static_cast<std::uint32_t>(jobs_.size()), std::memory_order_release);
  return job;
}

void BackupService::run_jobs() {
  const auto is_called = [this] {
    return waiting_.load(std::memory_order_acquire) != 0 ||
           is_stopping_.load(std::memory_order_acquire);
  };
  while (true) {
    env_.poll_until(is_called, retry_at_, &watch_);
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
        remove_file(job.name);
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
  frames_.write(frame, {region->data(), frame.valid});
  region.reset();
  const std::lock_guard lock(mutex_);
  ++counters_.flushes;
  counters_.bytes += frame.valid;
  if (replica.is_gone) return;  // its buffer is dealt with, and its file will be
  pool_.clear(*replica.buffer);
  renew_later(*replica.buffer);
  replica.buffer.reset();
  --unflushed_;
}

void BackupService::renew(std::uint32_t buffer) {
  pool_.renew(buffer);
  env_.charge_copy(options_.segment_bytes, &pool_.footprint());
  const std::lock_guard lock(mutex_);
  pool_.give_back(buffer);
  ++counters_.zeroed;
}

void BackupService::remove_file(const Name& name) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = replicas_.find(name);
    if (found != replicas_.end()) {  // opened again: the file goes with this replica
      found->second->may_have_file = true;
      return;
    }
  }
  frames_.remove(name.first, name.second);
}

BackupCounters BackupService::counters() {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::vector<std::string> BackupService::problems() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> problems = problems_;
  for (const auto& [what, problem] : failing_) problems.push_back(problem);
  return problems;
}

}  // namespace pyrdma::tailwind
