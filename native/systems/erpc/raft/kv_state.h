// KvState is the replicated state: a table of 16 byte keys and values of up to 64 bytes (paper,
// section 7.1), and one session for each client.
//
// A session holds the client's last sequence number and its result. A put that comes again finds
// its number there and is answered without a second execution, so each put takes effect exactly
// once (Ongaro's thesis, section 6.3). A get changes nothing, so it needs no session. Sessions
// never end: their table is bounded, and a put of one client too many is refused.
#pragma once
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/checksum.h"
#include "env/env.h"
#include "systems/erpc/raft/bugs.h"
#include "systems/erpc/raft/kv_messages.h"
#include "systems/erpc/raft/observer.h"
#include "systems/erpc/raft/state_machine.h"

namespace pyrdma::erpc::raft {

class KvState final : public StateMachine {
 public:
  struct Options {
    std::size_t max_clients = 4096;
    Bugs bugs;
    Observer* observer = nullptr;  // outlives the state
  };
  /// `env` names the member to the observer and takes the costs.
  KvState(Env& env, const Options& options) : env_(env), options_(options) {}

  KvAnswer apply(std::uint64_t index, ByteView command) override;
  Bytes snapshot() const override;
  bool restore(ByteView snapshot) override;

  /// Answers a get from this member's state, which may be old.
  KvAnswer get(const Key& key) const;
  std::size_t keys() const { return slots_.size(); }
  std::size_t clients() const { return sessions_.size(); }
  /// Puts that were answered from a session.
  std::uint64_t repeated() const { return repeated_; }

 private:
  struct Slot {
    Key key{};
    Value value;
    std::uint64_t version = 0;
  };
  struct Session {
    std::uint64_t sequence = 0, version = 0;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return checksum(key, 0); }
  };
  KvAnswer put(std::uint64_t index, const KvCommand& command);

  Env& env_;
  Options options_;
  std::vector<Slot> slots_;
  std::unordered_map<Key, std::size_t, KeyHash> places_;  // in slots_
  std::map<std::uint64_t, Session> sessions_;             // by client
  std::uint64_t repeated_ = 0;
};

}  // namespace pyrdma::erpc::raft
