// The limits and switches of an endpoint. Each was a constant of the paper's program; here each is
// a parameter that is checked when the endpoint is made.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.h"
#include "fabric/types.h"

namespace pyrdma::erpc {

enum class Preset : std::uint8_t {
  kPaper,   // the steps, messages and orders of the paper; its claims are judged on these
  kPublic,  // the same with the constants of the public program where they differ
  kBest,    // every switch on that improves on the paper
};
inline constexpr std::array<std::string_view, 3> kPresetNames{"paper", "public", "best"};

enum class CongestionControl : std::uint8_t { kNone, kTimely, kDcqcn };
inline constexpr std::array<std::string_view, 3> kCongestionControlNames{"none", "timely", "dcqcn"};

struct Options {
  std::string name = "erpc";  // names the run: endpoints with the same name can reach each other

  // Limits.
  std::uint32_t credits = 32;            // packets that a session may have under way (C); 1..4096
  std::uint32_t slots = 8;               // requests of a session under way; a power of two, 1..64
  std::uint32_t backlog = 1 << 20;       // requests that wait for a slot, per session
  std::uint32_t receive_entries = 4096;  // |RQ|: datagrams that may wait at the endpoint
  std::uint32_t max_message = 8 << 20;   // bytes of a request or response
  /// Bytes of a packet with its header; 0: as many as a datagram of the device has, at most 4 KiB.
  std::uint32_t packet_bytes = 0;
  /// Bytes of a response buffer that each slot of a server has; 0: the data of a packet.
  std::uint32_t preallocated_bytes = 0;
  /// Sessions may have more credits than the endpoint has receives. A packet may then find none.
  bool overcommit = false;
  std::uint32_t workers = 0;  // threads of this endpoint for handlers that take long; 0..64
  /// For tests: the number from which each client session counts its requests, so that it soon
  /// passes the last one, 2^36 - 1. Otherwise each session draws one.
  std::optional<std::uint64_t> first_request;
  /// For tests: the generation of the first session of each place of the first endpoint of a name,
  /// so that it soon passes the last one, 4095. Otherwise the name decides.
  std::optional<std::uint64_t> first_generation;
  /// For tests: the number before that of the endpoint's first client session. Entries of the
  /// timing wheel name sessions by these numbers of 32 bits, which go round.
  std::uint32_t sessions_before = 0;

  // Times, in ns.
  Time retransmission_timeout = 5 * kMillisecond;  // section 5.2.3
  /// With adaptive_timeout: a busy peer is silent for some hundred microseconds. IRN's is as long
  /// (Mittal et al., SIGCOMM 2018).
  Time least_timeout = 300 * kMicrosecond;
  /// Silence after which a peer counts as dead. A handler of the dispatch thread and a continuation
  /// must be shorter, as must all work of the thread between two turns of the event loop.
  Time failure_timeout = 500 * kMillisecond;
  Time connect_timeout = 10 * kSecond;        // until a session must be connected
  Time connect_interval = 10 * kMillisecond;  // between two requests to connect

  // Batches.
  std::uint32_t post_batch = 16;        // packets per doorbell; 1..64
  std::uint32_t receive_batch = 32;     // packets per poll; 1..64
  std::uint32_t inline_bytes = 60;      // longest packet that the CPU hands to the NIC itself
  std::uint32_t receive_strides = 512;  // datagrams per receive, where the device can

  // Congestion control (section 5.2).
  CongestionControl congestion_control = CongestionControl::kTimely;
  double link_gbps = 0;  // the most that a session sends; 0: what the device says, or else 25

  // The optimizations of table 3.
  bool batched_timestamps = true;      // one clock reading per batch (5.2.2)
  bool timely_bypass = true;           // no update while uncongested (5.2.2)
  bool rate_limiter_bypass = true;     // no wheel while uncongested (5.2.2)
  bool multi_packet_receives = true;   // one descriptor for many packets (4.1.1)
  bool preallocated_responses = true;  // (4.3)
  bool zero_copy_receive = true;       // handlers read the NIC's buffer (4.2.3)

  /// The server copies the pieces of a long request together. Without the copies a handler sees
  /// memory of undefined content; measures what they cost (section 6.4).
  bool request_copies = true;

  /// The retransmission timeout doubles after each eight copies of a packet without an answer. Not
  /// in the paper, whose timeout is fixed: a paced request whose round trip is longer never ends.
  bool growing_timeouts = false;
  /// The retransmission timeout of a session follows its round trips (round_trip.h), between
  /// least_timeout and retransmission_timeout. Not in the paper.
  bool adaptive_timeout = false;

  /// No rate control over a device that tells no rate of a link (shared memory, Soft-RoCE), unless
  /// link_gbps is set: CPUs set its rate, and Timely takes a thread that waits for a core for a
  /// full queue. Not in the paper.
  bool unpaced_without_link = false;

  /// Packets have a checksum, so that a NIC's undetected error is a lost packet. Not in the paper.
  bool checksums = false;

  static Options of(Preset preset);
};

/// Returns the options with the zeros filled in for a device. Throws Error(kInvalidArgument) that
/// names the option, its value and the bound.
Options checked(const Options& options, const fabric::Capabilities& device);

}  // namespace pyrdma::erpc
