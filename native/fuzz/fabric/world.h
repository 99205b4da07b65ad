// What the whole run knows: the truth against which each client's observations are held, and the
// management network by which nodes agree on connections. It lives outside of the simulation, and
// survives the crashes of its nodes.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "fabric/sim/cluster.h"
#include "fuzz/fabric/plan.h"
#include "fuzz/fabric/stamp.h"
#include "fuzz/fabric/words.h"
#include "fuzz/scenario.h"

namespace pyrdma::fuzz {

/// Memory that a node registers, between guards that nobody may touch.
class Arena {
 public:
  explicit Arena(std::size_t bytes);
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  bool guards_intact() const;

 private:
  static constexpr std::size_t kGuard = 4096;
  static constexpr std::byte kPattern{0xa5};
  std::size_t bytes_;
  std::vector<std::byte> memory_;
  std::byte* data_;
};

/// Where things are in a node's memory.
struct Layout {
  explicit Layout(const Options& options);
  std::size_t record(NodeId source, std::uint32_t record) const {
    return records + (std::size_t{source} * kRecords + record) * kMostBytes;
  }
  std::size_t counter(std::uint32_t word) const { return std::size_t{word} * 8; }
  std::size_t cell(std::uint32_t word) const { return (std::size_t{words} + word) * 8; }
  std::uint32_t words;  // counters; and as many registers
  std::size_t records, bytes;
};

/// What readers of one record may find, in the life of its node that the writer last saw.
struct RecordState {
  std::uint32_t incarnation = 0;
  std::uint32_t posted = 0;  // newest version that may be there
  std::uint32_t sure = 0;    // everybody sees this one or a newer one
  // Newest version posted on the present connection: what the same connection reads from now on.
  std::uint32_t here = 0;
};

/// What one side of a connection sent on it, in order.
struct Sent {
  std::uint32_t version = 0;
  std::uint32_t length = 0;
  Kind kind = Kind::kSend;
  std::uint8_t record = 0;  // the last one written before, or the one that this writes
  std::uint32_t record_version = 0;
};
struct Stream {
  std::uint32_t generation = ~0u;
  std::vector<Sent> sent;
  std::size_t delivered = 0;
  std::size_t acknowledged = 0;
};

/// A client, for the whole run: its plan, and how far it is.
struct ClientState {
  NodeId from = 0, to = 0;  // equal: the client of a node, to any
  std::uint32_t id = 0;
  Plan plan;
  std::size_t next = 0;       // in the plan
  std::uint32_t version = 0;  // last one given out
  bool done = false;
  std::array<Stream, 2> reliable, unreliable;  // by generation modulo 2
  std::vector<bool> received;                  // at nodes: versions of datagrams that have arrived
  // While it waits.
  Watch control;
  Env* env = nullptr;
  fabric::CompletionQueue* queue = nullptr;
};

/// What two nodes have agreed on.
struct PairState {
  std::uint32_t generation = 0;  // of the connection that both should have
  struct Side {
    std::int64_t published = -1, ready = -1;  // generation
    Time published_at = 0;
  };
  std::array<Side, 2> sides;  // lower node, higher node
};

struct NodeState {
  std::uint32_t version = 0;  // of what it published about itself; 0: nothing yet
  std::uint32_t lives = 0;
  std::unique_ptr<Arena> shared;            // of this life
  std::vector<std::unique_ptr<Arena>> all;  // of all lives; kept, since late writes may come
  // The log on disk.
  std::vector<std::vector<std::uint32_t>> log;  // versions written to each place
  std::size_t log_next = 0, log_synced = 0;
  std::uint32_t log_version = 0;
};

class World {
 public:
  World(const Options& options, Outcome& outcome);

  void violation(const char* kind, const std::string& text);
  bool on(Fault fault) const { return options.faults[fault].rate > 0; }
  Time now() const { return cluster->now(); }
  bool healed() const { return now() >= options.faults.heal_at; }

  ClientState& client(NodeId from, NodeId to) { return *clients_[from * options.nodes + to]; }
  PairState& pair(NodeId a, NodeId b) {
    return pairs_[std::min(a, b) * options.nodes + std::max(a, b)];
  }
  PairState::Side& side(NodeId me, NodeId peer) { return pair(me, peer).sides[me > peer]; }
  RecordState& record(NodeId target, NodeId source, std::uint32_t record) {
    return records_[(target * options.nodes + source) * kRecords + record];
  }
  /// The word's history in the present life of `target`.
  AtomicWord& word(NodeId target, std::uint32_t incarnation, bool counter, std::uint32_t index);

  /// Both ends should move on to a connection after `generation`.
  void renew(NodeId a, NodeId b, std::uint32_t generation);
  /// Wakes the client where it waits.
  static void wake(ClientState& client);
  void finish(ClientState& client);
  bool finished() const { return finished_; }

  /// A read of `place` is judged: the versions found against those that may be there.
  void judge_read(const char* what, const Versions& found, std::uint32_t least, std::uint32_t most,
                  const ClientState& reader, const PlannedOperation& op);
  /// The clients that have not come to their end, and how far they are.
  std::string unfinished() const;
  void check_words();
  void check_memory();

  const Options& options;
  Outcome& outcome;
  Layout layout;
  fabric::sim::SimCluster* cluster = nullptr;
  std::vector<NodeState> nodes;
  std::vector<AtomicWord> words;
  bool tears;      // reads may mix versions
  bool any_order;  // writes of one connection may be placed in any order

 private:
  std::vector<std::unique_ptr<ClientState>> clients_;
  std::vector<PairState> pairs_;
  std::vector<RecordState> records_;
  std::vector<std::size_t> current_;  // index in words + 1, of each word of each node
  std::uint32_t unfinished_ = 0;
  bool finished_ = false;
};

}  // namespace pyrdma::fuzz
