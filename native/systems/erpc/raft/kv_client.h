// KvClient is one client of the store: one operation at a time, tried at one member after the other
// until it is done. It knows no network: its owner sends the bytes of request() to target(), and
// reports what comes back.
//
// All tries of a put carry one sequence number, so the put takes effect once however often it is
// tried. An operation that is given up may still take effect; the next one gets the next number.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "env/env.h"
#include "systems/erpc/raft/bugs.h"
#include "systems/erpc/raft/kv_messages.h"

namespace pyrdma::erpc::raft {

class KvClient {
 public:
  struct Options {
    std::vector<NodeId> members;        // at least one
    Time timeout = 200 * kMillisecond;  // of a try
    Time pause = 20 * kMillisecond;     // before the next try, if no leader is known
    Bugs bugs;
  };
  /// `id` is different for each client that ever uses the store. Throws Error(kInvalidArgument) if
  /// there are no members.
  KvClient(std::uint64_t id, const Options& options);

  /// Begins an operation; the client must be idle.
  void put(Time now, const Key& key, ByteView value);
  void get(Time now, const Key& key);
  /// Gives the operation up.
  void abandon() { busy_ = false; }
  bool busy() const { return busy_; }

  /// Returns the request if it is time for a try. The caller sends it to target().
  std::optional<Bytes> request(Time now);
  NodeId target() const { return options_.members[target_]; }
  /// Returns when request() has something new: kForever while idle.
  Time next() const { return busy_ ? next_ : kForever; }
  /// Takes an answer. Returns the operation's result if it has ended. Answers of earlier
  /// operations and bytes that are no answer are dropped and counted.
  std::optional<KvAnswer> answer(Time now, ByteView bytes);
  /// The last try has failed for certain; the next goes to another member.
  void failed(Time now);

  std::uint64_t sequence() const { return command_.sequence; }
  std::uint64_t tries() const { return tries_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  void begin(Time now);
  void turn_to_next();

  Options options_;
  KvCommand command_;
  bool busy_ = false, tried_ = false, first_ = true;
  Time next_ = 0;
  std::size_t target_ = 0;
  std::uint64_t tries_ = 0, dropped_ = 0;
};

}  // namespace pyrdma::erpc::raft
