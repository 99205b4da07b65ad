// One node's connection to one peer in the soak. The link meets the peer's present incarnation
// through the rendezvous, exchanges checked data with it, notices its end, and meets the next
// incarnation.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "env/env.h"
#include "fabric/fabric.h"
#include "measure/params.h"
#include "runtime/exchange.h"
#include "runtime/handshake.h"

namespace pyrdma::measure::soak {

/// The objects and settings that all links of a node share.
struct Shared {
  Env& env;
  const Params& params;
  std::uint32_t bytes;  // payload of a round
  Time interval;        // pause between two rounds of one link
  std::unique_ptr<fabric::ProtectionDomain> pd;
  std::unique_ptr<fabric::CompletionQueue> completions;
  std::unique_ptr<fabric::MemoryRegion> region;

  /// Returns a value that a peer has published for this run, if there is one by now.
  template <class T>
  std::optional<T> find(const std::string& key) const {
    const auto bytes_found = env.device().rendezvous().find(params.key("soak/" + key));
    if (!bytes_found || bytes_found->size() != sizeof(T)) return std::nullopt;
    T value{};
    std::memcpy(&value, bytes_found->data(), sizeof value);
    return value;
  }
  template <class T>
  void publish(const std::string& key, const T& value) const {
    env.device().rendezvous().publish_value(params.key("soak/" + key), value);
  }
};

struct Counts {
  std::uint64_t rounds = 0;
  std::uint64_t met = 0;
  std::uint64_t lost = 0;
  std::uint64_t wrong = 0;  // impossible words, counters, messages or statuses
};

/// Returns "node.incarnation", for keys.
std::string name_of(NodeId node, std::uint32_t incarnation);

class Link {
 public:
  static constexpr std::uint32_t kReceives = 16;  // receives posted at once, one message each
  static constexpr std::uint32_t kMessage = 64;
  static constexpr std::uint32_t kOutstanding = 4 + kReceives;  // most completions at once

  /// The node's region holds `room()` bytes for each peer, in order.
  static std::size_t room(std::uint32_t bytes);
  Link(Shared& shared, NodeId peer);

  /// Takes the next step that is due. Returns the time of the next step if no request completes
  /// before.
  Time turn(Time now);
  /// Handles a completion of one of this link's requests, of this or an earlier connection.
  void complete(const fabric::Completion& completion);
  static NodeId peer_of(std::uint64_t wr_id) { return static_cast<NodeId>(wr_id >> 8 & 0xffff); }
  const Counts& counts() const { return counts_; }
  std::uint32_t incarnation() const { return incarnation_; }

 private:
  enum class State : std::uint8_t { kAbsent, kMeeting, kUp };
  enum class Kind : std::uint8_t { kWrite, kRead, kAdd, kSend, kReceive };

  std::uint64_t wr_id(Kind kind, std::uint32_t slot) const;
  std::uint64_t word(NodeId from, std::uint32_t incarnation, std::uint64_t round,
                     std::uint32_t at) const;
  std::uint64_t* words(std::size_t offset) const;
  fabric::Sge sge(std::size_t offset, std::uint32_t bytes) const;
  void look_for_peer();
  void connect();
  void lose();
  void begin_round();
  void check_read();
  void check_add();
  void check_message(std::uint32_t slot);
  void receive(std::uint32_t slot);
  void expect(bool holds) { counts_.wrong += holds ? 0 : 1; }

  Shared& shared_;
  NodeId peer_;
  std::size_t begin_;  // offset of this link's room in the region
  State state_ = State::kAbsent;
  std::uint32_t incarnation_ = 0;  // incarnation of the peer, known or awaited
  std::uint32_t connection_ = 0;   // number of the connection, in each wr_id
  fabric::RemoteRegion remote_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::optional<runtime::Handshake> handshake_;  // of `qp_`, while it is not connected
  Time due_ = 0;
  std::uint32_t pending_ = 0;  // outstanding completions of the round
  std::uint64_t sent_ = 0, received_ = 0;
  std::optional<std::uint64_t> counter_;  // last value seen of the counter at the peer
  Counts counts_;
};

}  // namespace pyrdma::measure::soak
