// The log of a topic at a subscriber: one file, with a record per sample in the order of delivery
// (section 4.6).
//
//   | mark | mark | record, record ... | zeros, or the end of the file |
//
// A record is | bytes of the sample, publisher | chain | check | sample, padded to 8 |. The chain
// is a checksum over the sample and the chain before it. So one word says whether two logs agree up
// to a number, and the records of logs that agree are equal byte for byte.
//
// A crash may leave any part of what was not durable. Two rules tell a torn end, which is cut, from
// damage, which is refused:
//
// - The newest mark says how many samples are durable. It is written when the sync that made them
//   so has returned, and it is durable with the next sync, at no cost of its own. So it never says
//   too much. A log with fewer whole records than it says is damaged. The marks take turns, in
//   sectors of their own: one is always whole. A file with records and no mark is damaged.
// - A crash leaves each sector as it was or as it was written (File). Behind the end it was zeros.
//   The words of a record are mixed with a word of its number, so that none is zero but by a chance
//   of 2^-64. So a torn record has only zeros in at least one sector. Any other that does not
//   verify is damaged, whether a mark says that it was durable or not: also in the last sync before
//   a crash, whose mark may be lost.
//
// What stays unseen is whole sectors of that last sync that became zeros: a disk that has synced
// nothing, and said that it had.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "env/env.h"
#include "env/storage.h"
#include "systems/spindle/bugs.h"

namespace pyrdma::spindle::dds {

struct Sample {
  NodeId publisher = 0;
  std::uint64_t number = 0;  // of the samples of the topic at this subscriber, from 0 on
  Bytes bytes;
};

class FileWindow;

class SampleLog {
 public:
  /// Opens the log, reads all records and makes them durable. A torn end, as a crash leaves it, is
  /// cut off. Throws Error(kUnavailable) for a log that is damaged, naming the offset and the
  /// number of records before it; with `cut_damage` it cuts the log there. Cost: reads the file in
  /// pieces of 64 KiB; 16 bytes of memory per record.
  SampleLog(Env& env, std::string name, bool cut_damage = false, Bugs bugs = {});

  std::uint64_t samples() const { return chains_.size(); }
  /// The chain after the first `number` samples; requires number <= samples().
  std::uint64_t chain(std::uint64_t number) const { return number == 0 ? 0 : chains_[number - 1]; }

  /// Adds a sample to the batch that write() writes.
  void append(NodeId publisher, ByteView sample);
  /// Writes the batch with one request to the disk. Not durable before sync().
  void write();
  /// Blocks until all written records are durable. Cost: one sync, and a write of 32 bytes.
  void sync();
  /// Removes all samples from `number` on for good. A crash in between leaves the log as it was, or
  /// with a torn end. Cost: two syncs, and as many zeros as there were bytes.
  void cut(std::uint64_t number);
  /// Calls `act` for each sample from `from` on, until it returns false.
  void read(std::uint64_t from, const std::function<bool(const Sample&)>& act);

  // Records between nodes. A log that agrees up to a number takes what follows as it is in the
  // file, which nobody has looked at since.

  /// Returns up to `most` bytes of the records from number `from` on, after the first `skipped`
  /// ones. Cost: one request to the disk.
  Bytes records(std::uint64_t from, std::uint64_t skipped, std::uint64_t most);
  enum class State : std::uint8_t { kWhole, kShort, kBad };
  struct Record {
    State state = State::kShort;
    std::uint64_t bytes = 0;  // of the record, as far as they are known
    std::uint64_t chain = 0;
    Sample sample;
  };
  /// Returns the first record of `bytes`, which follows `number` samples with the chain `chain`.
  static Record parse(ByteView bytes, std::uint64_t number, std::uint64_t chain);

 private:
  Record at(FileWindow& window, std::uint64_t number);
  std::uint64_t offset(std::uint64_t number) const {
    return number < samples() ? offsets_[number] : end_ + batch_.size();
  }
  bool read_marks();
  void load(bool cut_damage);
  bool is_torn(FileWindow& window, const Record& record) const;
  [[noreturn]] void refuse() const;
  void put_mark(std::uint64_t durable);
  void write_again();
  void flush();
  void clear_rest();

  Env& env_;
  const std::string name_;
  const Bugs bugs_;
  std::unique_ptr<File> file_;
  std::vector<std::uint64_t> chains_, offsets_;  // by number
  std::uint64_t end_ = 0;                        // of the records in the file
  std::uint64_t used_ = 0;                       // what is behind is zeros
  std::uint64_t durable_ = 0;                    // samples
  bool is_doubtful_ = true;  // a sync or a mark has failed: what is lost, no later sync saves
  std::uint64_t marks_ = 0, marked_ = 0;  // marks so far, and the samples that the last one counts
  Bytes batch_;
};

}  // namespace pyrdma::spindle::dds
