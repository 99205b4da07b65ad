#include "systems/spindle/dds/sample_log.h"

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"

namespace pyrdma::spindle::dds {

namespace {

constexpr std::uint32_t kMagic = 0x5d5a6c67;
constexpr std::size_t kRecordHeader = 32;

std::uint64_t padded(std::uint64_t bytes) { return (bytes + 7) / 8 * 8; }

// A mark is the number of records since the last durable one, then its complement: the chain leaves
// it out, since two logs that agree may have synced at different times. The largest mark stands for
// more records too, and so says nothing.
constexpr std::uint32_t kMostBehind = 0xffff;

std::uint32_t mark_of(std::uint64_t behind) {
  const auto low = static_cast<std::uint32_t>(std::min<std::uint64_t>(behind, kMostBehind));
  return low | (~low << 16);
}

std::uint32_t behind_of(std::uint32_t mark) { return mark & kMostBehind; }
bool is_mark(std::uint32_t mark) { return mark == mark_of(behind_of(mark)); }

}  // namespace

std::uint64_t SampleLog::chained(std::uint64_t chain, NodeId publisher, std::uint64_t number,
                                 ByteView sample) {
  return checksum(sample, mix64(mix64(chain ^ mix64(number)) ^ publisher));
}

void put_sample(ByteWriter& out, NodeId publisher, ByteView bytes) {
  out.put(publisher);
  out.put(static_cast<std::uint32_t>(bytes.size()));
  out.put(bytes);
}

std::optional<SampleView> get_sample(ByteReader& in) {
  const auto publisher = in.get<std::uint32_t>();
  const auto bytes = in.get<std::uint32_t>();
  const ByteView sample = in.bytes(bytes);
  if (!in.ok()) return std::nullopt;
  return SampleView{publisher, sample};
}

SampleLog::SampleLog(Env& env, std::string name, bool cut_damage)
    : env_(env), name_(std::move(name)), file_(env.storage().open(name_)) {
  env.storage().sync();
  load(cut_damage);
}

SampleLog::Found SampleLog::parse(ByteView rest, std::uint64_t number, std::uint64_t chain) const {
  Found found;
  ByteReader in(rest);
  const auto magic = in.get<std::uint32_t>();
  const auto bytes = in.get<std::uint32_t>();
  found.sample.publisher = in.get<std::uint32_t>();
  const auto mark = in.get<std::uint32_t>();
  found.sample.number = in.get<std::uint64_t>();
  found.chain = in.get<std::uint64_t>();
  if (!in.ok() || magic != kMagic || !is_mark(mark) || found.sample.number != number) return found;
  const ByteView sample = in.bytes(bytes);
  const ByteView padding = in.bytes(padded(bytes) - bytes);
  if (!in.ok() || std::ranges::count(padding, std::byte{0}) != std::ssize(padding)) return found;
  if (chained(chain, found.sample.publisher, number, sample) != found.chain) return found;
  found.sample.bytes.assign(sample.begin(), sample.end());
  found.bytes = kRecordHeader + padded(bytes);
  found.is_whole = true;
  return found;
}

// A crash may leave some of the records that were not durable, in any order.
void SampleLog::load(bool cut_damage) {
  Bytes content(file_->size());
  content.resize(file_->read(0, content));
  const ByteView all(content);
  while (end_ < all.size()) {
    Found found = parse(all.subspan(end_), samples(), chain(samples()));
    if (!found.is_whole) break;
    offsets_.push_back(end_);
    chains_.push_back(found.chain);
    end_ += found.bytes;
  }
  bool was_durable = false;
  for (std::uint64_t at = end_ + 8; at + kRecordHeader <= all.size() && !was_durable; at += 8) {
    ByteReader in(all.subspan(at));
    const bool begins = in.get<std::uint32_t>() == kMagic;
    const auto bytes = in.get<std::uint32_t>();
    in.get<std::uint32_t>();
    const auto mark = in.get<std::uint32_t>();
    const auto number = in.get<std::uint64_t>();
    was_durable = begins && is_mark(mark) && behind_of(mark) < kMostBehind &&
                  number > samples() + behind_of(mark) && number - samples() < (1U << 30) &&
                  at + kRecordHeader + bytes <= all.size();
  }
  if (was_durable && !cut_damage) {
    throw Error(ErrorCode::kUnavailable,
                "log '" + name_ + "' does not verify at offset " + std::to_string(end_) + " of " +
                    std::to_string(all.size()) + " B: " + std::to_string(samples()) +
                    " samples before it can be saved; cut_damage cuts the log there, or copy the "
                    "log of another subscriber");
  }
  cut_bytes_ = all.size() - end_;
  if (cut_bytes_ != 0) {
    env_.reached("spindle/torn_log");
    // Zeros end the log: a later record must not seem to continue it.
    file_->write(end_, Bytes(cut_bytes_));
  }
  file_->sync();
  durable_ = samples();
}

void SampleLog::append(NodeId publisher, ByteView sample) {
  const std::uint64_t number = samples();
  const std::uint64_t next = chained(chain(number), publisher, number, sample);
  offsets_.push_back(end_ + batch_.size());
  chains_.push_back(next);
  ByteWriter out(batch_);
  out.put(kMagic);
  out.put(static_cast<std::uint32_t>(sample.size()));
  out.put(publisher);
  out.put(mark_of(number - durable_));
  out.put(number);
  out.put(next);
  out.put(sample);
  out.align();
}

void SampleLog::write() {
  if (batch_.empty()) return;
  file_->write(end_, batch_);
  end_ += batch_.size();
  batch_.clear();
}

void SampleLog::sync() {
  write();
  file_->sync();
  durable_ = samples();
}

// Backwards, one record at a time: a crash in between leaves a log with a torn end.
void SampleLog::cut(std::uint64_t number) {
  sync();
  while (samples() > number) {
    file_->write(offsets_.back(), Bytes(end_ - offsets_.back()));
    file_->sync();
    end_ = offsets_.back();
    offsets_.pop_back();
    chains_.pop_back();
  }
  durable_ = samples();
}

void SampleLog::read(std::uint64_t from, const std::function<bool(const Sample&)>& act) {
  write();
  for (std::uint64_t number = from; number < samples(); ++number) {
    const std::uint64_t end = number + 1 < samples() ? offsets_[number + 1] : end_;
    Bytes record(end - offsets_[number]);
    file_->read(offsets_[number], record);
    const Found found = parse(record, number, chain(number));
    if (!found.is_whole) {
      throw Error(ErrorCode::kUnavailable,
                  "log '" + name_ + "' has changed at offset " + std::to_string(offsets_[number]));
    }
    if (!act(found.sample)) return;
  }
}

}  // namespace pyrdma::spindle::dds
