// World is the state of the whole run: the truth that each client's observations are checked
// against, and the management network by which nodes agree on connections. It lies outside the
// simulation and survives the crashes of its nodes.
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

/// Arena is memory that a node registers, between guards that no node may touch.
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

/// Layout gives the offsets in a node's memory.
struct Layout {
  explicit Layout(const Options& options);
  std::size_t record(NodeId source, std::uint32_t record) const {
    return records + (std::size_t{source} * kRecords + record) * kMostBytes;
  }
  std::size_t counter(std::uint32_t word) const { return std::size_t{word} * 8; }
  std::size_t cell(std::uint32_t word) const { return (std::size_t{words} + word) * 8; }
  std::uint32_t words;  // number of counters, and of registers
  std::size_t records, bytes;
};

/// RecordState bounds the versions that readers of one record may find, in the incarnation of its
/// node that the writer last saw.
struct RecordState {
  std::uint32_t incarnation = 0;
  std::uint32_t posted = 0;  // newest version that a reader may find
  std::uint32_t sure = 0;    // every reader sees this version or a newer one
  // Newest version posted on the present connection: reads on that connection see at least this
  // one.
  std::uint32_t here = 0;
};

/// Sent describes one message that one side of a connection sent; a Stream holds them in order.
struct Sent {
  std::uint32_t version = 0;
  std::uint32_t length = 0;
  Kind kind = Kind::kSend;
  std::uint8_t record = 0;  // the last record written before, or the one that this message writes
  std::uint32_t record_version = 0;
};
struct Stream {
  std::uint32_t generation = ~0u;
  std::vector<Sent> sent;
  std::size_t delivered = 0;
  std::size_t acknowledged = 0;
};

/// ClientState is a client over the whole run: its plan and its progress.
struct ClientState {
  NodeId from = 0, to = 0;  // equal: the client of a node that talks to any node
  std::uint32_t id = 0;
  Plan plan;
  std::size_t next = 0;       // index in the plan
  std::uint32_t version = 0;  // last version given out
  bool done = false;
  std::array<Stream, 2> reliable, unreliable;  // by generation modulo 2
  std::vector<bool> received;                  // at nodes: versions of datagrams that arrived
  // Set while the client waits.
  Watch control;
  Env* env = nullptr;
  fabric::CompletionQueue* queue = nullptr;
};

/// PairState is the agreement between two nodes.
struct PairState {
  std::uint32_t generation = 0;  // generation of the connection that both should have
  struct Side {
    std::int64_t published = -1, ready = -1;  // generations
    Time published_at = 0;
    fabric::RemoteRegion shared;  // of the incarnation that published
    std::uint32_t incarnation = 0;
  };
  std::array<Side, 2> sides;  // lower node, higher node
};

struct NodeState {
  std::uint32_t version = 0;  // version of the node's published address; 0: none yet
  std::uint32_t incarnations = 0;
  std::unique_ptr<Arena> shared;  // of the present incarnation
  // One arena for each incarnation; all are kept because late writes may come.
  std::vector<std::unique_ptr<Arena>> all;
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
  /// Returns true if the fault has happened, at any node.
  bool happened(Fault fault) const {
    return cluster->fault_counters().fired[static_cast<std::size_t>(fault)] > 0;
  }
  Time now() const { return cluster->now(); }
  bool healed() const { return now() >= options.faults.heal_at; }
  /// An operation begins.
  void begins() {
    ++outcome.begun;
    outcome.begun_under_faults += cluster->faults_are_on();
  }

  ClientState& client(NodeId from, NodeId to) { return *clients_[from * options.nodes + to]; }
  PairState& pair(NodeId a, NodeId b) {
    return pairs_[std::min(a, b) * options.nodes + std::max(a, b)];
  }
  PairState::Side& side(NodeId me, NodeId peer) { return pair(me, peer).sides[me > peer]; }
  RecordState& record(NodeId target, NodeId source, std::uint32_t record) {
    return records_[(target * options.nodes + source) * kRecords + record];
  }
  /// Returns the word's history in incarnation `incarnation` of `target`.
  AtomicWord& word(NodeId target, std::uint32_t incarnation, bool counter, std::uint32_t index);

  /// Asks both nodes to move on to a connection after `generation`.
  void renew(NodeId a, NodeId b, std::uint32_t generation);
  /// Wakes the client wherever it waits.
  static void wake(ClientState& client);
  void finish(ClientState& client);
  bool finished() const { return finished_; }

  /// Checks a read of `place`: compares the versions found with the possible ones.
  void judge_read(const char* what, const Versions& found, std::uint32_t least, std::uint32_t most,
                  const ClientState& reader, const PlannedOperation& op);
  /// Lists the clients that have not finished, with their progress.
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
  std::vector<std::size_t> current_;  // index in words + 1, for each word of each node
  std::uint32_t unfinished_ = 0;
  bool finished_ = false;
};

}  // namespace pyrdma::fuzz
