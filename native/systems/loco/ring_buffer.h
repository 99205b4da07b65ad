// One-to-many broadcast of messages of any size (paper, section 5.4; FaRM's buffer, NSDI 2014).
//
// Every reader has a copy of the ring. The writer pushes each message into all copies. The readers
// publish their progress in a table of registers, which frees space. The NIC may place the bytes of
// a write in any order, and a place holds bytes of earlier laps, so neither the first nor the last
// word of a message proves that the message is whole. A message carries its length, a sequence
// number, and a checksum over its bytes and its position in the stream. A reader takes the message
// only when all of them match.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "env/scope.h"
#include "systems/loco/bugs.h"
#include "systems/loco/sst.h"
#include "systems/loco/writer_turn.h"

namespace pyrdma::loco {

/// A position counts all bytes that the writer has put into the ring before it, modulo 2^64. A ring
/// whose capacity is not a power of two ends there, after 46 years at 100 Gbit/s.
class RingBuffer : public Channel {
 public:
  /// `capacity` is the number of bytes of the ring, a multiple of 16. `first` is the position of
  /// the first message, a multiple of 16, for tests. Throws Error(kInvalidArgument) otherwise.
  RingBuffer(Manager& manager, std::string name, NodeId writer, std::uint64_t capacity,
             std::vector<NodeId> participants = {}, std::uint64_t first = 0);
  RingBuffer(Channel& parent, std::string_view name, NodeId writer, std::uint64_t capacity,
             std::uint64_t first = 0);

  NodeId writer() const { return writer_; }
  /// The longest message. Two of them fit into the ring, so one always fits after the ring's end.
  std::uint64_t max_message() const { return capacity_ / 2 - kFrame; }

  // Calls of the writer, one thread at a time. Threads may take turns, each with its own caller. A
  // change of the caller costs a read of no bytes per reader (WriterTurn): the new caller's queue
  // pairs must not overtake messages that are not placed yet. A late byte of an earlier lap would
  // destroy a message of this lap, if the place held that byte's value before: the reader has then
  // not missed it.
  //
  // A message that throws an error is not sent: nothing changes before its first request is posted,
  // and nothing but the end of a thread of the runtime, which ends every call, stops the others.

  /// Sends a copy of `message` to every reader and returns the position after it. Blocks while the
  /// ring is full. Throws Error(kInvalidArgument) for a message that is too long, and
  /// Error(kTimeout), naming the readers that do not acknowledge, after wait_timeout. Cost: a
  /// request per reader.
  std::uint64_t broadcast(Caller& me, std::span<const std::byte> message);
  /// The same without waiting: returns nothing when the ring is full.
  std::optional<std::uint64_t> try_broadcast(Caller& me, std::span<const std::byte> message);
  /// Returns true if every reader has acknowledged all bytes before `position`. Any thread may
  /// call.
  bool acknowledged(std::uint64_t position);
  /// Returns the readers that have not acknowledged all bytes before `position`.
  std::vector<NodeId> unacknowledged(std::uint64_t position);

  /// Returns the readers that keep a message of `bytes` bytes from the ring now.
  std::vector<NodeId> awaited_for(std::uint64_t bytes) { return unacknowledged(freed_by(bytes)); }

  // Calls of a reader, one thread at a time; each may use another caller. A change of the caller
  // that acknowledges waits until the acknowledgements before it are placed.

  /// Returns the next message if all of it has arrived: a copy that lasts until the next call.
  /// Never blocks.
  std::optional<std::span<const std::byte>> next(Caller& me);
  /// Acknowledges to the writer all messages that next() has returned. Cost: a request.
  void acknowledge(Caller& me);

 private:
  static constexpr std::uint64_t kUnit = 16;   // divides message sizes: a mark fits before the end
  static constexpr std::uint64_t kFrame = 16;  // the words around a message
  static constexpr std::uint32_t kSkip = 0xffffffff;  // as a length: continue at the ring's start

  void make();
  static std::uint64_t size_of(std::uint64_t bytes);
  std::uint64_t begin_of(std::uint64_t bytes) const;
  std::uint64_t freed_by(std::uint64_t bytes) const;
  bool has_acknowledged(NodeId reader, std::uint64_t position) {
    const std::uint64_t told = *acks_.row(rank_of(reader)).try_load();
    return static_cast<std::int64_t>(told - position) >= 0;
  }
  std::uint64_t head_word(std::uint64_t position, std::uint32_t length) const;
  std::uint64_t tail_word(std::uint64_t position, std::uint32_t length,
                          std::span<const std::byte> bytes) const;
  std::uint64_t frame(std::uint64_t position, std::uint32_t length,
                      std::span<const std::byte> bytes);
  void push(Caller& me, std::uint64_t from, std::uint64_t begin, std::uint64_t bytes);
  void wait_for_room(Caller& me, std::uint64_t bytes);

  NodeId writer_;
  std::uint64_t capacity_;
  Bugs bugs_;
  LocalRegion ring_;
  std::optional<Footprint> footprint_;  // of ring_
  Sst<std::uint64_t> acks_;             // positions that the readers have acknowledged
  std::uint64_t end_;                   // writer: the position after the last message
  WriterTurn turn_;                     // writer
  std::uint64_t at_;                    // reader: the position of the next message
  std::uint64_t told_;                  // reader: the last acknowledged position
  std::vector<std::byte> copy_;
};

}  // namespace pyrdma::loco
