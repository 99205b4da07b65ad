// A client of the store. It finds the server of a key through the coordinator, and sends a request
// again until it has an answer: to the new owner after a crash, with the same number, so an update
// happens once (RIFL, Lee et al., SOSP 2015, as in RAMCloud).
//
// One thread uses a client. Its waits and poll() take answers.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "systems/tailwind/options.h"
#include "systems/tailwind/rpc/messages.h"
#include "systems/tailwind/rpc/transport.h"

namespace pyrdma::tailwind {

/// What an operation has led to.
struct Result {
  StoreStatus status = StoreStatus::kRetry;  // kOk, kNoObject, kLogFull or kBadRequest
  std::uint64_t version = 0;
  Bytes value;                 // of a read
  std::uint32_t attempts = 0;  // requests that were sent
};

class Client {
 public:
  using OnEnd = std::function<void(const Result&)>;

  /// `number` tells the clients of one incarnation of a node apart, from 0 to
  /// ServerId::kClients - 1. Waits for the coordinator. Throws Error(kTimeout) after `patience`,
  /// which holds for each wait of the client.
  Client(Env& env, const Options& options, std::uint32_t number, Time patience);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Returns the number of the table. A new one is spread evenly over `owners`, by their nodes;
  /// over all servers that are up if there are none. Waits until `owners` are up.
  std::uint64_t create_table(std::string_view name, const std::vector<NodeId>& owners = {});
  /// Connects to the servers of a table, so that the first requests do not wait for that.
  void connect(std::uint64_t table);
  /// Waits until so many servers are up.
  void await_servers(std::size_t count);

  // Each blocks for the answer. Throws Error(kTimeout), which names the server, after the patience:
  // an update may then happen later.
  Result read(std::uint64_t table, ByteView key);
  Result write(std::uint64_t table, ByteView key, ByteView value);
  Result remove(std::uint64_t table, ByteView key);

  /// Begins an operation; `on_end` is called by poll() or by a wait of this client.
  void start(Opcode opcode, std::uint64_t table, ByteView key, ByteView value, OnEnd on_end);
  std::size_t under_way() const { return operations_.size(); }
  /// Takes answers. Returns true if there was something to do.
  bool poll();
  /// Waits for ready(), and takes answers meanwhile. Returns false at the deadline. Throws
  /// Error(kUnavailable) when no answer will come any more: another client may be made.
  bool run_until(FunctionRef<bool()> ready, Time deadline);

  const ClusterView& view() const { return view_; }
  Transport& transport() { return transport_; }
  /// The server of a key, for messages.
  std::string describe(std::uint64_t table, ByteView key) const;

 private:
  struct Operation {
    std::uint64_t number = 0;
    Opcode opcode = Opcode::kRead;
    std::uint64_t table = 0, hash = 0, sequence = 0;
    Bytes key, value;
    std::uint32_t attempts = 0;
    Time pause = 0;  // before the last attempt
    OnEnd on_end;
  };
  void send(Operation& operation);
  void send_later(Operation& operation);
  void take(std::uint64_t number, CallEnd end, ByteView answer);
  void locate();
  void take_view(ByteView answer);
  Result run(Opcode opcode, std::uint64_t table, ByteView key, ByteView value);

  Env& env_;
  const Options options_;
  const ServerId coordinator_;
  const Time patience_;
  Transport transport_;
  ClusterView view_;
  bool is_locating_ = false;
  std::uint64_t client_ = 0;         // the number that the coordinator gave
  std::uint64_t next_sequence_ = 1;  // of updates
  std::set<std::uint64_t> open_;     // sequences of updates under way
  std::uint64_t next_number_ = 1;
  std::map<std::uint64_t, Operation> operations_;
  std::vector<std::unique_ptr<Incoming>> requests_;  // a client gets none
  Time next_tick_ = 0;
};

}  // namespace pyrdma::tailwind
