// RPCs over RDMA-written rings in the style of FaRM (Dragojevic et al.: FaRM, NSDI 2014, section
// 4), to compare eRPC with.
//
// Every two threads of different nodes have an RC connection and a ring in each direction, in the
// memory of its reader. The writer writes a message by one RDMA write; the reader polls its memory.
// The reader writes its position back once per quarter of the ring. So memory, queue pairs and
// polling grow with the number of peers.
//
// FaRM takes the last word of a message as proof that all words before it are there. The fabric
// does not promise the order of the words of a write (fabric/README.md). So the last word is a
// checksum of the message with its number, as in LOCO's rings.
//
// A message: a word of number, kind and bytes; a word of the slot; the payload in whole words; the
// checksum. A message never wraps: within the last `frame_bytes_` of the ring none begins.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "runtime/handshake.h"
#include "systems/erpc/baselines/baseline_rpc.h"

namespace pyrdma::erpc {

class FarmRingRpc final : public BaselineRpc {
 public:
  /// Makes the rings and queue pairs, and publishes their addresses. Throws
  /// Error(kInvalidArgument) for options outside their bounds.
  FarmRingRpc(Env& env, const BaselineOptions& options, BaselineHandler handler);
  void connect(Time deadline) override;
  void flush() override {}  // each message is posted at once: every queue pair has a doorbell
  bool poll(Done done) override;

 private:
  enum class Kind : std::uint8_t { kRequest = 1, kResponse = 2 };
  struct Position {
    std::uint64_t at = 0;      // bytes since the begin of the connection
    std::uint32_t number = 1;  // of the next message
  };
  struct Link {
    std::unique_ptr<fabric::QueuePair> qp;
    fabric::RemoteRegion ring, head;  // at the peer
    Position written, read;
    std::uint64_t freed = 0;     // what the peer has read, as far as known
    std::uint64_t reported = 0;  // what the peer knows of `read`
    std::uint32_t asked = 0;     // requests without a response
    std::uint32_t posted = 0, completed = 0;
  };
  struct Message {
    Kind kind;
    std::uint32_t slot;
    std::span<const std::byte> payload;
    std::uint64_t end;  // of the message in the ring
  };

  bool send_request(std::uint32_t peer, std::uint32_t slot,
                    std::span<const std::byte> request) override;
  void check_ring() const;
  void make_links();
  std::string pair_name(std::uint32_t peer) const;
  std::string rings_key(NodeId node, std::uint32_t thread) const;
  std::uint64_t begin_of(std::uint64_t at) const;
  std::byte* next_message(std::uint32_t peer);
  void post_message(std::uint32_t peer, Kind kind, std::uint32_t slot, std::size_t bytes);
  void post_write(std::uint32_t peer, const fabric::Sge& from, const fabric::RemoteRegion& to,
                  std::uint64_t offset);
  void learn_freed(std::uint32_t peer);
  void reap();
  bool find(std::uint32_t peer, Message& found);
  bool read_one(std::uint32_t peer, Done done);
  void report(std::uint32_t peer);

  fabric::Device& device_;
  const std::uint64_t frame_bytes_;  // of the longest message
  std::uint32_t max_inline_ = 0, send_entries_ = 0;
  std::unique_ptr<fabric::ProtectionDomain> pd_;
  std::unique_ptr<fabric::MemoryRegion> inbox_;   // a ring per peer, then the peers' positions
  std::unique_ptr<fabric::MemoryRegion> outbox_;  // the same layout, from which is written
  std::unique_ptr<fabric::CompletionQueue> completions_, unused_;
  std::vector<Link> links_;                     // by peer
  std::vector<runtime::Handshake> handshakes_;  // by peer
  std::vector<std::uint64_t> copy_;             // of the message that is read
};

}  // namespace pyrdma::erpc
