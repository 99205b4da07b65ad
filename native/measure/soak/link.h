// One node's connection to one peer in the soak: meets the peer's present incarnation through the
// rendezvous, exchanges checked data with it, notices its end, and meets the next one.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "env/env.h"
#include "fabric/fabric.h"
#include "measure/params.h"
#include "runtime/exchange.h"

namespace pyrdma::measure::soak {

/// What all links of a node share.
struct Shared {
  Env& env;
  const Params& params;
  std::uint32_t bytes;  // of a round's payload
  Time interval;        // between rounds of one link
  std::unique_ptr<fabric::ProtectionDomain> pd;
  std::unique_ptr<fabric::CompletionQueue> completions;
  std::unique_ptr<fabric::MemoryRegion> region;

  /// Something that a peer published for this run, if it has by now.
  template <class T>
  std::optional<T> find(const std::string& key) const {
    const auto bytes_found = runtime::find_bytes(env, params.key("soak/" + key));
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
  std::uint64_t wrong = 0;  // words, counters, messages or statuses that cannot be
};

/// "node.incarnation", in keys.
std::string name_of(NodeId node, std::uint32_t incarnation);

class Link {
 public:
  static constexpr std::uint32_t kReceives = 16;  // posted at once, of one message each
  static constexpr std::uint32_t kMessage = 64;
  static constexpr std::uint32_t kOutstanding = 4 + kReceives;  // completions, at most

  /// The node's region holds `room()` bytes for each peer, in order.
  static std::size_t room(std::uint32_t bytes);
  Link(Shared& shared, NodeId peer);

  /// Takes the next step that is due; returns when the next one is, if nothing completes before.
  Time turn(Time now);
  /// A completion of one of this link's requests, of this or an earlier connection.
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
  runtime::Exchange exchange() const;
  void connect(const fabric::QpAddress& address);
  void lose();
  void begin_round();
  void check_read();
  void check_add();
  void check_message(std::uint32_t slot);
  void receive(std::uint32_t slot);
  void expect(bool holds) { counts_.wrong += holds ? 0 : 1; }

  Shared& shared_;
  NodeId peer_;
  std::size_t begin_;  // of this link's room in the region
  State state_ = State::kAbsent;
  std::uint32_t incarnation_ = 0;  // of the peer that is known, or looked for
  std::uint32_t connection_ = 0;   // told apart in completions
  fabric::RemoteRegion remote_;
  std::unique_ptr<fabric::QueuePair> qp_;
  Time due_ = 0;
  std::uint32_t pending_ = 0;  // completions of the round
  std::uint64_t sent_ = 0, received_ = 0;
  std::optional<std::uint64_t> counter_;  // the peer's, as last seen
  Counts counts_;
};

}  // namespace pyrdma::measure::soak
