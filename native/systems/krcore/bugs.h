// Deliberate bugs: slips of the printed algorithms, of the public code and of related systems.
// Tests switch one on to show that the checks find it. Each function returns the correct decision,
// unless its bug is on.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace pyrdma::krcore {

enum class Bug : std::uint8_t {
  kNone,
  kNoCheck,              // of a request before its post, as in the public code
  kErrorByOpcode,        // an error completion goes to the owner of the oldest such opcode
  kDeadQueuePairKept,    // in the choice of a queue pair
  kCountUnpackedShort,   // the bits of wr_id are packed one way and unpacked another
  kNoWaitForLease,       // before a region's memory is used again
  kLeaseFromAnswer,      // it counts from the end of its READ, not from before the post
  kIdBoundOffByOne,      // a virtual queue pair's number may equal the table's size
  kMetaOnMissOnly,       // algorithm 1 as printed: no metadata on a hit of the cache
  kCountOffByOne,        // algorithm 2 as printed: a last unsignaled request frees one too many
  kHeadReadyOnly,        // algorithm 2 as printed: a second completion is lost
  kErrorMidList,         // algorithm 2 as printed: checked while the state changes
  kSendDepthOnly,        // algorithm 2 as printed: the completion queue's depth is not asked
  kTransferWithoutFake,  // a transfer does not wait for the requests before it
  kTransferWithoutAck,   // nor for the peer
  kStaleMetaKept,        // metadata of an earlier life of a node
  kGenerationIgnored,    // of a virtual queue pair that has been made again
  kReadBeforeReceive,    // a zero-copy send ends before the READ
  kStrangersBelieved,    // a datagram speaks for the node that it names
  kOffersOfLastLife,     // an offer of a node's last life is taken for one of this life
  kUnknownConfirmed,     // a connection is confirmed that this node does not have
  kNoWayKept,            // a request of the service without a way holds up those behind it
  kOneSenderKept,        // which long messages were taken is known of the last sender alone
  kBucketsKept,          // buckets for collisions serve no other chain
  kFullTableIgnored,     // likewise, and a region is registered although no peer can find it
  kOffersInTurn,         // an offer of a reliable connection waits for the answer to the one before
};

inline constexpr std::array<std::string_view, 25> kBugNames{"no_check",
                                                            "error_by_opcode",
                                                            "dead_queue_pair_kept",
                                                            "count_unpacked_short",
                                                            "no_wait_for_lease",
                                                            "lease_from_answer",
                                                            "id_bound_off_by_one",
                                                            "meta_on_miss_only",
                                                            "count_off_by_one",
                                                            "head_ready_only",
                                                            "error_mid_list",
                                                            "send_depth_only",
                                                            "transfer_without_fake",
                                                            "transfer_without_ack",
                                                            "stale_meta_kept",
                                                            "generation_ignored",
                                                            "read_before_receive",
                                                            "strangers_believed",
                                                            "offers_of_last_life",
                                                            "unknown_confirmed",
                                                            "no_way_kept",
                                                            "one_sender_kept",
                                                            "buckets_kept",
                                                            "full_table_ignored",
                                                            "offers_in_turn"};

class Bugs {
 public:
  constexpr Bugs(Bug bug = Bug::kNone) : bug_(bug) {}  // NOLINT: a bug is a set of bugs by itself
  static constexpr Bugs named(std::string_view name) {
    for (std::size_t i = 0; i < kBugNames.size(); ++i) {
      if (kBugNames[i] == name) return static_cast<Bug>(i + 1);
    }
    return {};
  }
  constexpr bool has(Bug bug) const { return bug_ == bug; }

 private:
  Bug bug_;
};

}  // namespace pyrdma::krcore
