// The log of a topic at a subscriber: one file of records, in the order of delivery (section 4.6).
//
//   | magic, bytes of the sample | publisher, mark | number | chain | sample, padded to 8 |
//
// The chain is a checksum over the record and the chain before it. So one word says whether two
// logs agree up to a number, and a record that was torn or changed is found. The mark says how many
// records were durable when this one was written. So a record that a crash has torn differs from a
// durable one that was damaged later.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "env/env.h"
#include "env/storage.h"

namespace pyrdma::spindle::dds {

struct Sample {
  NodeId publisher = 0;
  std::uint64_t number = 0;  // of the samples of the topic at this subscriber, from 0 on
  Bytes bytes;
};

/// A sample in a message between nodes.
void put_sample(ByteWriter& out, NodeId publisher, ByteView bytes);
struct SampleView {
  NodeId publisher;
  ByteView bytes;  // belongs to the message
};
/// Returns the next sample, or nothing if the message ends before it does.
std::optional<SampleView> get_sample(ByteReader& in);

class SampleLog {
 public:
  /// Opens the log, reads all records and makes them durable. A torn end, as a crash leaves it, is
  /// cut off. Throws Error(kUnavailable) for a record that was durable and does not verify, naming
  /// the offset and the number of records before it; with `cut_damage` it cuts the log there.
  SampleLog(Env& env, std::string name, bool cut_damage = false);

  std::uint64_t samples() const { return chains_.size(); }
  std::uint64_t cut_bytes() const { return cut_bytes_; }
  /// The chain after the first `number` samples; requires number <= samples().
  std::uint64_t chain(std::uint64_t number) const { return number == 0 ? 0 : chains_[number - 1]; }
  /// The chain after sample `number` of any log, from the chain before it.
  static std::uint64_t chained(std::uint64_t chain, NodeId publisher, std::uint64_t number,
                               ByteView sample);
  /// Adds a sample to the batch that write() writes.
  void append(NodeId publisher, ByteView sample);
  /// Writes the batch with one request to the disk. Not durable before sync().
  void write();
  /// Blocks until all written records are durable.
  void sync();
  /// Removes all samples from `number` on; durable. Cost: two requests to the disk per sample.
  void cut(std::uint64_t number);
  /// Calls `act` for each sample from `from` on, until it returns false. Cost: a request to the
  /// disk per sample.
  void read(std::uint64_t from, const std::function<bool(const Sample&)>& act);

 private:
  struct Found {
    bool is_whole = false;
    std::uint64_t bytes = 0;  // of the record
    std::uint64_t chain = 0;
    Sample sample;
  };
  Found parse(ByteView rest, std::uint64_t number, std::uint64_t chain) const;
  void load(bool cut_damage);

  Env& env_;
  const std::string name_;
  std::unique_ptr<File> file_;
  std::vector<std::uint64_t> chains_, offsets_;  // by number
  std::uint64_t end_ = 0, cut_bytes_ = 0;
  std::uint64_t durable_ = 0;  // samples
  Bytes batch_;
};

}  // namespace pyrdma::spindle::dds
