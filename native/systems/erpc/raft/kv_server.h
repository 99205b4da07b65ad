// KvServer answers the commands of clients by the group that its member belongs to.
//
// A put goes through the log. A get goes through the log as well, so it needs neither a lease nor a
// read index: it takes its place among the puts, and a member that leads no more cannot answer it
// (thesis, section 6.4, names this the simple way). Clients keep the sequence number of a put in
// each retry.
#pragma once
#include <cstdint>
#include <functional>

#include "systems/erpc/raft/bugs.h"
#include "systems/erpc/raft/kv_state.h"
#include "systems/erpc/raft/member.h"

namespace pyrdma::erpc::raft {

class KvServer {
 public:
  struct Options {
    std::size_t max_in_flight = 1024;  // commands; a further one is answered kBusy
    Bugs bugs;
  };
  /// `member` and `state` outlive the server; `state` is the member's.
  KvServer(Env& env, Member& member, KvState& state, const Options& options)
      : env_(env), member_(member), state_(state), options_(options) {}

  /// Carries out a command. `done` runs exactly once, here or in a turn of the member, unless the
  /// member ends before.
  void submit(ByteView command, std::function<void(const KvAnswer&)> done);
  std::size_t in_flight() const { return in_flight_; }
  std::uint64_t malformed() const { return malformed_; }

 private:
  KvAnswer refusal(KvStatus status, std::uint64_t sequence) const;

  Env& env_;
  Member& member_;
  KvState& state_;
  Options options_;
  std::size_t in_flight_ = 0;
  std::uint64_t malformed_ = 0;
};

}  // namespace pyrdma::erpc::raft
