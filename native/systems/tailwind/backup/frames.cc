#include "systems/tailwind/backup/frames.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "systems/tailwind/log/scan.h"

namespace pyrdma::tailwind {

namespace {

constexpr std::uint64_t kFrameMagic = 0x31656d6172667774;  // "twframe1"
constexpr std::uint64_t kIndexMagic = 0x317865646e697774;  // "twindex1"
constexpr std::size_t kRecordBytes = 32;                   // no record lies in two sectors
constexpr const char* kIndexName = "replicas";
constexpr const char* kNewIndexName = "replicas-unfinished";
constexpr const char* kUnfinishedName = "replica-unfinished";

std::string frame_name(std::uint64_t log, std::uint64_t segment) {
  std::array<char, 64> text{};
  const int length =
      std::snprintf(text.data(), text.size(), "replica-%llx-%llx",
                    static_cast<unsigned long long>(log), static_cast<unsigned long long>(segment));
  return {text.data(), static_cast<std::size_t>(length)};
}

void put_record(Bytes& records, std::uint64_t log, std::uint64_t segment) {
  const std::size_t begin = records.size();
  ByteWriter out(records);
  out.put(kIndexMagic);
  out.put(log);
  out.put(segment);
  out.put(std::uint64_t{crc32c(ByteView(records).subspan(begin))});
}

Bytes header_block(const Frame& frame) {
  Bytes block;
  ByteWriter out(block);
  out.put(kFrameMagic);
  out.put(frame.log);
  out.put(frame.segment);
  out.put(frame.attempt);
  out.put(frame.version);
  out.put(frame.valid);
  out.put(frame.entries);
  out.put(frame.checksum);
  out.put(crc32c(block));
  block.resize(Frames::kHeaderBlock);
  return block;
}

std::optional<Frame> parse_header(ByteView block) {
  ByteReader in(block);
  const auto magic = in.get<std::uint64_t>();
  Frame frame;
  frame.log = in.get<std::uint64_t>();
  frame.segment = in.get<std::uint64_t>();
  frame.attempt = in.get<std::uint64_t>();
  frame.version = in.get<std::uint64_t>();
  frame.valid = in.get<std::uint32_t>();
  frame.entries = in.get<std::uint32_t>();
  frame.checksum = in.get<std::uint32_t>();
  const std::size_t covered = block.size() - in.left();
  const auto crc = in.get<std::uint32_t>();
  if (!in.ok() || magic != kFrameMagic || crc != crc32c(block.first(covered))) return std::nullopt;
  return frame;
}

}  // namespace

Frames::Frames(Storage& storage, std::uint32_t most_bytes)
    : storage_(storage), most_bytes_(most_bytes), index_(storage.open(kIndexName)) {
  storage.remove(kUnfinishedName);
  storage.remove(kNewIndexName);
  storage.sync();
}

std::vector<Frame> Frames::find(std::vector<std::string>& problems) {
  const std::uint64_t size = index_->size();
  // A torn record at the end is overwritten by the next one.
  index_end_ = size / kRecordBytes * kRecordBytes;
  for (std::uint64_t at = 0; at < index_end_; at += kRecordBytes) {
    std::array<std::byte, kRecordBytes> record{};
    try {
      if (index_->read(at, record) != record.size()) break;
    } catch (const Error& error) {
      problems.push_back("file '" + std::string(kIndexName) + "', offset " + std::to_string(at) +
                         ": " + error.what() + "; the replica that it names is not used");
      has_unread_ = true;
      continue;
    }
    // A crash amid an append leaves zeros. The replica's file was not written then.
    if (is_zeros(record)) continue;
    ByteReader in(record);
    const auto magic = in.get<std::uint64_t>();
    const auto log = in.get<std::uint64_t>(), segment = in.get<std::uint64_t>();
    const auto crc = in.get<std::uint64_t>();
    if (magic != kIndexMagic || crc != crc32c(ByteView(record).first(24)))
      problems.push_back("file '" + std::string(kIndexName) + "', offset " + std::to_string(at) +
                         ": the record is damaged; the replica that it names is not used");
    else
      listed_.emplace(log, segment);
  }
  // What was freed or never finished.
  std::erase_if(listed_, [this](const Name& name) {
    return !storage_.exists(frame_name(name.first, name.second));
  });
  stale_ = index_end_ / kRecordBytes - listed_.size();
  std::vector<Frame> frames;
  for (const auto& [log, segment] : listed_) {
    const Loaded loaded = read(log, segment);
    if (loaded.problem.empty()) {
      frames.push_back(loaded.frame);
      continue;
    }
    problems.push_back(loaded.problem);
    has_unread_frame_ = has_unread_frame_ || !loaded.is_damaged;
  }
  return frames;
}

void Frames::list(const Name& name) {
  if (listed_.contains(name)) return;
  if (index_ == nullptr) open_index();
  Bytes record;
  put_record(record, name.first, name.second);
  index_->write(index_end_, record);
  index_->sync();
  index_end_ += kRecordBytes;
  listed_.insert(name);
}

// Both files have all that is listed. A failure leaves one of them at the name.
void Frames::write_index_anew() {
  storage_.remove(kNewIndexName);
  const auto file = storage_.open(kNewIndexName);
  Bytes records;
  for (const auto& [log, segment] : listed_) put_record(records, log, segment);
  file->write(0, records);
  file->sync();
  index_ = nullptr;
  storage_.rename(kNewIndexName, kIndexName);
  open_index();
}

void Frames::open_index() {
  storage_.sync();  // no record goes to a file that a crash would replace by the other one
  auto file = storage_.open(kIndexName);
  index_end_ = file->size() / kRecordBytes * kRecordBytes;
  stale_ = index_end_ / kRecordBytes - listed_.size();
  index_ = std::move(file);
}

void Frames::write(const Frame& frame, ByteView data) {
  PYRDMA_ASSERT(data.size() == frame.valid);
  list({frame.log, frame.segment});
  // What a failed attempt has left may be longer.
  storage_.remove(kUnfinishedName);
  const auto file = storage_.open(kUnfinishedName);
  file->write(0, header_block(frame));
  file->write(kHeaderBlock, data);
  file->sync();
  storage_.rename(kUnfinishedName, frame_name(frame.log, frame.segment));
  storage_.sync();
}

void Frames::remove(std::span<const Name> names) {
  if (names.empty()) return;
  for (const auto& [log, segment] : names) storage_.remove(frame_name(log, segment));
  storage_.sync();
  for (const Name& name : names) stale_ += listed_.erase(name);
  if (has_unread_ || stale_ <= listed_.size() + kMostStale) return;
  try {
    write_index_anew();
  } catch (const Error&) {
    stale_ = listed_.size();  // the file is gone; the index waits for as many removals again
  }
}

Frames::Loaded Frames::read(std::uint64_t log, std::uint64_t segment) {
  const std::string name = frame_name(log, segment);
  Loaded loaded;
  const auto refused = [&](const std::string& why) {
    loaded.data.clear();
    loaded.problem = "file '" + name + "': " + why + "; the replica is not used";
    return loaded;
  };
  const auto damaged = [&](const std::string& why) {
    loaded.is_damaged = true;
    return refused(why);
  };
  if (!storage_.exists(name)) return damaged("it is not there");
  try {
    const auto file = storage_.open(name);
    Bytes block(kHeaderBlock);
    block.resize(file->read(0, block));
    const auto header = parse_header(block);
    if (!header) return damaged("its header is damaged");
    if (header->log != log || header->segment != segment)
      return damaged("it has another replica: segment " + std::to_string(header->segment) +
                     " of log " + std::to_string(header->log));
    if (header->valid > most_bytes_)
      return refused("it has " + std::to_string(header->valid) + " B, and segments have at most " +
                     std::to_string(most_bytes_) + " B; start with a larger segment_bytes");
    loaded.data.resize(header->valid);
    if (file->read(kHeaderBlock, loaded.data) != loaded.data.size())
      return damaged("it ends before byte " + std::to_string(kHeaderBlock + header->valid));
    const Scan found = scan(loaded.data);
    if (found.valid != header->valid || found.checksum != header->checksum ||
        found.entries != header->entries)
      return damaged("its data are damaged: valid are " + std::to_string(found.valid) + " of " +
                     std::to_string(header->valid) + " B");
    loaded.frame = *header;
  } catch (const Error& error) {
    return refused(error.what());
  }
  return loaded;
}

}  // namespace pyrdma::tailwind
