// What a seed decides for all nodes: the options of the services, the load, and the plans of all
// clients.
#pragma once
#include <cstdint>
#include <vector>

#include "fuzz/scenario.h"
#include "systems/krcore/options.h"

namespace pyrdma::krcore::scenario {

inline constexpr std::uint32_t kMostClients = 3;  // threads of a node
inline constexpr std::uint32_t kMostLanes = 3;    // queue pairs of a client to one node at a time
inline constexpr std::uint32_t kMostMessage = 3000;  // bytes; longer than a buffer of the service

enum class Act : std::uint8_t {
  kWrites,     // a list of writes, some without a signal, and a read behind them
  kAdd,        // a fetch-and-add
  kShared,     // an operation on a word that all clients use
  kMessage,    // a message to the node's inbox
  kMalformed,  // a request that must fail alone
  kRenew,      // the connection ends, and another one begins, with requests outstanding
  kMove,       // the queue pair goes to another core, or to another physical one
  kLend,       // a region is registered for others
  kUse,        // a region of another client is used, also after its end
  kReturn,     // a region is removed; its memory may go to another one
  kWait,       // all requests of a queue pair end
  kBreak,      // the physical queue pair fails under requests
  kCount,
};

struct Planned {
  std::uint32_t id = 0;
  Act act = Act::kWrites;
  NodeId target = 0;
  std::uint32_t lane = 0;
  std::uint32_t size = 0;
  std::uint64_t draw = 0;
  Time pause = 0;
};

struct Shape {
  explicit Shape(const fuzz::Options& options);
  /// By node * clients + client.
  std::vector<std::vector<Planned>> plans(const fuzz::Options& options, std::uint32_t pace) const;

  Options service;
  bool has_dynamic = true;            // connections
  NodeId stranger = fabric::kNoNode;  // the node that forges datagrams
  std::uint32_t clients = 2, lanes = 1;
  std::uint32_t depth = 1;      // requests outstanding of a queue pair, beside its latest list
  std::uint32_t shared = 1;     // words of a node that all clients use
  std::uint32_t message = 200;  // bytes of most messages, at most
  std::uint32_t burst = 1;      // messages at a time, behind writes if there are several
  std::uint32_t queue_entries = 128;
  bool one_target = false;             // most operations go to node 0
  bool breaks = false;                 // physical queue pairs so that requests may fail
  bool one_by_one = false;             // the requests of a list are posted one by one
  bool clears_caches = false;          // when all is well again
  std::vector<std::uint32_t> weights;  // of each Act
};

}  // namespace pyrdma::krcore::scenario
