// One-to-many broadcast of messages of any size (paper, section 5.4; FaRM's buffer, NSDI 2014).
//
// Every reader has a copy of the ring; the writer pushes each message into all of them, and readers
// tell through a table of registers how far they have come, which frees space. The bytes of a write
// may be placed in any order and a place holds bytes of earlier laps, so neither the first nor the
// last word of a message says that it is whole: it carries its length, a sequence number, and a
// checksum over its bytes and its position in the stream, and a reader takes it only when all of
// them match.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "systems/loco/bugs.h"
#include "systems/loco/sst.h"

namespace pyrdma::loco {

/// Positions count the bytes that the writer has ever put into the ring.
class RingBuffer : public Channel {
 public:
  /// `capacity`: bytes of the ring, a multiple of 16. Throws Error(kInvalidArgument) otherwise.
  RingBuffer(Manager& manager, std::string name, NodeId writer, std::uint64_t capacity,
             std::vector<NodeId> participants = {});
  RingBuffer(Channel& parent, std::string_view name, NodeId writer, std::uint64_t capacity);

  NodeId writer() const { return writer_; }
  /// The longest message: two of them fit, so that one always fits behind the end of the ring.
  std::uint64_t max_message() const { return capacity_ / 2 - kFrame; }

  // Of the writer, one thread at a time; threads may take turns, each with its own caller.

  /// Sends a copy of `message` to every reader and returns the position behind it. Blocks while the
  /// ring is full. Throws Error(kInvalidArgument) for a message that is too long, and
  /// Error(kTimeout), naming the readers that do not acknowledge, after wait_timeout. Cost:
  /// a request per reader.
  std::uint64_t broadcast(Caller& me, std::span<const std::byte> message);
  /// The same without waiting: nothing when the ring is full.
  std::optional<std::uint64_t> try_broadcast(Caller& me, std::span<const std::byte> message);
  /// Whether every reader has acknowledged all that is before `position`. Any thread.
  bool acknowledged(std::uint64_t position);
  /// Blocks until then. Throws as broadcast() does.
  void wait_acknowledged(Caller& me, std::uint64_t position);
  /// " 2 5": the readers that have not acknowledged all that is before `position`.
  std::string unacknowledged(std::uint64_t position);

  // Of a reader, one thread.

  /// The next message, if it is there as a whole: a copy that lasts until the next call. Never
  /// blocks.
  std::optional<std::span<const std::byte>> next(Caller& me);
  /// Tells the writer that all messages that next() returned are done with. Cost: a request.
  void acknowledge(Caller& me);

 private:
  static constexpr std::uint64_t kUnit = 16;   // of messages, so that a mark fits before the end
  static constexpr std::uint64_t kFrame = 16;  // the words around a message
  static constexpr std::uint32_t kSkip = 0xffffffff;  // as a length: go on at the ring's start

  void make();
  static std::uint64_t size_of(std::uint64_t bytes);
  std::uint64_t begin_of(std::uint64_t bytes) const;
  std::uint64_t freed_by(std::uint64_t bytes) const;
  std::uint64_t head_word(std::uint64_t position, std::uint32_t length) const;
  std::uint64_t tail_word(std::uint64_t position, std::uint32_t length,
                          std::span<const std::byte> bytes) const;
  std::uint64_t frame(std::uint64_t position, std::uint32_t length,
                      std::span<const std::byte> bytes);
  void push(Caller& me, std::uint64_t from, std::uint64_t begin, std::uint64_t bytes);
  void wait_for_readers(Caller& me, std::uint64_t position, const char* what);

  NodeId writer_;
  std::uint64_t capacity_;
  Bugs bugs_;
  LocalRegion ring_;
  Sst<std::uint64_t> acks_;  // positions that readers are done with
  std::uint64_t end_ = 0;    // writer: behind the last message
  std::uint64_t at_ = 0;     // reader: of the next message
  std::uint64_t told_ = 0;   // reader: last position that was acknowledged
  std::vector<std::byte> copy_;
};

}  // namespace pyrdma::loco
