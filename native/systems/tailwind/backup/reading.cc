// What a backup tells those who recover a dead primary's log.
#include <algorithm>
#include <mutex>

#include "systems/tailwind/backup/backup_service.h"
#include "systems/tailwind/backup/described.h"
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

}  // namespace

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
  if (!found) {
    // A write of the CPU may end amid an entry, too: a large one comes with several requests.
    const bool has_length = contents.is_closed || contents.is_written_by_cpu;
    found = scan(has_length ? all.first(view.valid) : all, bugs_);
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
    may_have_more_ = may_have_more_ || !loaded->is_damaged;
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
  const std::lock_guard lock(mutex_);
  inventory.may_have_more = may_have_more_;
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

void BackupService::forget_inherited(ServerId primary) {
  const std::lock_guard lock(mutex_);
  std::erase_if(replicas_, [&](const auto& entry) {
    Replica& replica = *entry.second;
    if (entry.first.first != primary.number() || !replica.is_inherited) return false;
    retire_with_file(replica);
    return true;
  });
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

}  // namespace pyrdma::tailwind
