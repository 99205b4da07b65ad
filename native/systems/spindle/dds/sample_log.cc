#include "systems/spindle/dds/sample_log.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "systems/spindle/dds/file_window.h"

namespace pyrdma::spindle::dds {

namespace {

constexpr std::uint64_t kMagic = 0x31676f6c73646470;  // "pddslog1": the format
constexpr std::uint64_t kSector = 512;                // a crash leaves it as a whole
// Marks lie in pages of their own, so that no loss of a page takes both.
constexpr std::uint64_t kMarkPlace = 4096, kRecords = 2 * kMarkPlace;
constexpr std::uint64_t kMarkBytes = 32;
constexpr std::uint64_t kRecordHeader = 24;
constexpr std::uint64_t kChunk = 256 * 1024;  // bytes of a request to the disk; whole sectors

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

/// Mixes words with a word of the number; a second time gives the words back. Requires whole words.
void mix(std::span<std::byte> words, std::uint64_t number) {
  const std::uint64_t key = mix64(number ^ kMagic);
  for (std::size_t at = 0; at < words.size(); at += sizeof key) {
    std::uint64_t word = 0;
    std::memcpy(&word, words.data() + at, sizeof word);
    word ^= key;
    std::memcpy(words.data() + at, &word, sizeof word);
  }
}

std::uint64_t check_of(ByteView header, std::uint64_t number) {
  return checksum(header.first(kRecordHeader - 8), number ^ kMagic);
}

std::uint64_t chained(std::uint64_t chain, NodeId publisher, std::uint64_t number,
                      ByteView sample) {
  return checksum(sample, mix64(mix64(chain ^ mix64(number)) ^ publisher));
}

/// Calls `act(from, bytes)` for pieces of [from, to) that end where sectors do.
template <class Act>
void in_chunks(std::uint64_t from, std::uint64_t to, Act&& act) {
  while (from < to) {
    const std::uint64_t next = std::min(to, (from / kChunk + 1) * kChunk);
    act(from, next - from);
    from = next;
  }
}

}  // namespace

SampleLog::SampleLog(Env& env, std::string name, bool cut_damage, Bugs bugs)
    : env_(env), name_(std::move(name)), bugs_(bugs), file_(env.storage().open(name_)) {
  env.storage().sync();
  load(cut_damage);
}

SampleLog::Record SampleLog::parse(ByteView bytes, std::uint64_t number, std::uint64_t chain) {
  Record record;
  record.bytes = kRecordHeader;
  if (bytes.size() < record.bytes) return record;
  std::array<std::byte, kRecordHeader> plain;
  std::memcpy(plain.data(), bytes.data(), plain.size());
  mix(plain, number);
  ByteReader header(plain);
  const auto size = header.get<std::uint32_t>();
  record.sample.publisher = header.get<std::uint32_t>();
  record.chain = header.get<std::uint64_t>();
  record.sample.number = number;
  record.state = State::kBad;
  if (header.get<std::uint64_t>() != check_of(plain, number)) return record;
  record.bytes += padded(size);
  record.state = State::kShort;
  if (bytes.size() < record.bytes) return record;
  const ByteView mixed = bytes.subspan(kRecordHeader, padded(size));
  Bytes& sample = record.sample.bytes;
  sample.assign(mixed.begin(), mixed.end());
  mix(sample, number);
  const bool is_padded = is_zeros(ByteView(sample).subspan(size));
  sample.resize(size);
  const bool is_whole =
      is_padded && chained(chain, record.sample.publisher, number, sample) == record.chain;
  record.state = is_whole ? State::kWhole : State::kBad;
  return record;
}

SampleLog::Record SampleLog::at(FileWindow& window, std::uint64_t number) {
  const std::uint64_t place = number < samples() ? offsets_[number] : end_;
  Record record = parse(window.at(place, kRecordHeader), number, chain(number));
  if (record.state == State::kShort)
    record = parse(window.at(place, record.bytes), number, chain(number));
  return record;
}

/// Takes the newest mark. Returns false if there is none.
bool SampleLog::read_marks() {
  for (std::uint64_t at = 0; at < kRecords; at += kMarkPlace) {
    Bytes content(kMarkBytes);
    content.resize(file_->read(at, content));
    ByteReader in(content);
    const auto magic = in.get<std::uint64_t>();
    const auto turn = in.get<std::uint64_t>();
    const auto samples = in.get<std::uint64_t>();
    const bool is_whole =
        magic == kMagic &&
        in.get<std::uint64_t>() == checksum(ByteView(content).first(kMarkBytes - 8), 1);
    if (!in.ok() || !is_whole || turn <= marks_) continue;
    marks_ = turn;
    marked_ = samples;
  }
  return marks_ != 0;
}

// A write that fails may have left the mark or not.
void SampleLog::put_mark(std::uint64_t durable) {
  Bytes mark;
  ByteWriter out(mark);
  out.put(kMagic);
  out.put(++marks_);
  out.put(marked_ = durable);
  out.put(checksum(mark, 1));
  const bool was_doubtful = std::exchange(is_doubtful_, true);
  file_->write(marks_ % 2 * kMarkPlace, mark);
  is_doubtful_ = was_doubtful;
}

// Whether the record behind the end lacks all of its bytes in one sector, or ends behind the file.
bool SampleLog::is_torn(FileWindow& window, const Record& record) const {
  if (record.state == State::kShort) return true;
  const ByteView bytes = window.at(end_, record.bytes).first(record.bytes);
  for (std::uint64_t at = 0; at < bytes.size();) {
    const std::uint64_t piece = std::min(kSector - (end_ + at) % kSector, bytes.size() - at);
    if (is_zeros(bytes.subspan(at, piece))) return true;
    at += piece;
  }
  return false;
}

void SampleLog::refuse() const {
  throw Error(ErrorCode::kUnavailable,
              "log '" + name_ + "' does not verify at offset " + std::to_string(end_) + " of " +
                  std::to_string(used_) + " B: " + std::to_string(samples()) +
                  " samples before it can be saved" +
                  (marks_ != 0 ? ", of " + std::to_string(marked_) + " or more"
                               : ", and it has no mark, as a file of another version") +
                  "; cut_damage cuts the log there, or copy the log of another subscriber");
}

void SampleLog::load(bool cut_damage) {
  used_ = file_->size();
  end_ = kRecords;
  const bool has_mark = read_marks();
  FileWindow window(*file_, used_);
  Record record = at(window, 0);
  for (; record.state == State::kWhole; record = at(window, samples())) {
    offsets_.push_back(end_);
    chains_.push_back(record.chain);
    end_ += record.bytes;
  }
  const auto has_bytes = [&](std::uint64_t from) {
    bool found = false;
    in_chunks(from, used_, [&](std::uint64_t at, std::uint64_t bytes) {
      found = found || !is_zeros(window.at(at, bytes));
    });
    return found;
  };
  const bool is_damaged = samples() < marked_ || !is_torn(window, record) ||
                          (!has_mark && (used_ > kRecords || has_bytes(0)));
  if (is_damaged && !cut_damage && bugs_.refuses_damage()) refuse();
  durable_ = std::min(marked_, samples());
  if (has_bytes(end_)) env_.reached("spindle/torn_log");
  // Zeros, too: an earlier process may have written them, and its sync may have failed.
  if (used_ > end_) clear_rest();
  used_ = end_;
  sync();  // a mark is durable before the first record
}

void SampleLog::append(NodeId publisher, ByteView sample) {
  const std::uint64_t number = samples();
  const std::uint64_t next = chained(chain(number), publisher, number, sample);
  const std::size_t begin = batch_.size();
  offsets_.push_back(end_ + begin);
  chains_.push_back(next);
  ByteWriter out(batch_);
  out.put(static_cast<std::uint32_t>(sample.size()));
  out.put(publisher);
  out.put(next);
  out.put(check_of(ByteView(batch_).subspan(begin), number));
  out.put(sample);
  out.align();
  mix(std::span(batch_).subspan(begin), number);
}

void SampleLog::write() {
  if (used_ > end_) clear_rest();  // a cut has failed in its midst
  if (batch_.empty()) return;
  file_->write(end_, batch_);
  end_ = used_ = end_ + batch_.size();
  batch_.clear();
}

void SampleLog::sync() {
  write();
  if (is_doubtful_) write_again();
  is_doubtful_ = false;
  if (!bugs_.marks_behind_sync()) put_mark(samples());
  flush();
  durable_ = samples();
  if (marked_ != durable_) put_mark(durable_);
}

// What was doubtful stays so.
void SampleLog::flush() {
  const bool was_doubtful = std::exchange(is_doubtful_, true);
  file_->sync();
  is_doubtful_ = was_doubtful;
}

// A sync that fails may leave data that no later one makes durable, also one of an earlier process.
// The mark is such data, too, and it may be the only one.
void SampleLog::write_again() {
  put_mark(durable_);
  Bytes content;
  in_chunks(offset(durable_), end_, [&](std::uint64_t at, std::uint64_t bytes) {
    content.resize(bytes);
    file_->read(at, content);
    file_->write(at, content);
  });
}

// First the mark: a crash must not leave one that says more than the records. A sync that failed
// may have lost the last one.
void SampleLog::clear_rest() {
  if (marked_ > durable_ || is_doubtful_) {
    put_mark(durable_);
    flush();
  }
  const Bytes zeros(std::min(kChunk, used_ - end_));
  in_chunks(end_, used_, [&](std::uint64_t at, std::uint64_t bytes) {
    file_->write(at, ByteView(zeros).first(bytes));
  });
  flush();
  used_ = end_;
}

void SampleLog::cut(std::uint64_t number) {
  write();
  if (number >= samples()) return;
  end_ = offsets_[number];
  offsets_.resize(number);
  chains_.resize(number);
  durable_ = std::min(durable_, number);
  clear_rest();
}

void SampleLog::read(std::uint64_t from, const std::function<bool(const Sample&)>& act) {
  write();
  FileWindow window(*file_, end_);
  for (std::uint64_t number = from; number < samples(); ++number) {
    const Record record = at(window, number);
    if (record.state != State::kWhole) {
      throw Error(ErrorCode::kUnavailable,
                  "log '" + name_ + "' has changed at offset " + std::to_string(offsets_[number]) +
                      "; open it again with cut_damage, and let this node join()");
    }
    if (!act(record.sample)) return;
  }
}

Bytes SampleLog::records(std::uint64_t from, std::uint64_t skipped, std::uint64_t most) {
  write();
  const std::uint64_t begin = std::min(offset(from) + skipped, end_);
  Bytes bytes(std::min(most, end_ - begin));
  bytes.resize(file_->read(begin, bytes));
  return bytes;
}

}  // namespace pyrdma::spindle::dds
