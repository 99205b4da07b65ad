// A client of a table: one thread that keeps several operations under way over one-sided requests.
//
//   race::Client client(env, device, pd, completions, pairs, table, options);
//   client.insert(key, value);                      // waits
//   client.start(Kind::kLookup, tag, key);          // does not wait
//   for (const Result& result : client.poll()) ...  // what has ended
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "systems/krcore/race/address.h"
#include "systems/krcore/race/operation.h"
#include "systems/krcore/race/split.h"

namespace pyrdma::krcore::race {

struct Result {
  std::uint64_t tag = 0;
  Kind kind = Kind::kLookup;
  Outcome outcome = Outcome::kOk;
  ByteView value;                // of a lookup
  const Error* error = nullptr;  // of kFailed; error->definite(): the table has not changed by it
};

class Client {
 public:
  /// `pairs`: a connected reliable queue pair to each storage node, in their order. Their send
  /// queues complete into `completions`, which this client alone polls, and their protection domain
  /// is `pd`. All of them outlive the client. Waits for the directory. Throws
  /// Error(kInvalidArgument) for options or a table out of bounds, Error(kUnavailable) or
  /// Error(kTimeout) when the first storage node does not answer.
  Client(Env& env, fabric::Device& device, fabric::ProtectionDomain& pd,
         fabric::CompletionQueue& completions, std::span<fabric::QueuePair* const> pairs,
         const TableAddress& table, ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const ClientOptions& options() const { return options_; }
  const TableAddress& table() const { return table_; }

  /// Begins an operation. Requires !is_full(). Throws Error(kInvalidArgument) for a key or a value
  /// that the table cannot have. The value of the last results is gone.
  void start(Kind kind, std::uint64_t tag, ByteView key, ByteView value = {});
  bool is_full() const { return free_.empty() && returned_.empty(); }
  /// Operations that have begun and whose results poll() has not returned.
  std::uint32_t under_way() const { return under_way_; }
  /// Goes on with all operations, and returns the results of those that have ended. They are valid
  /// until the next call of any function of this client. Never waits.
  std::span<const Result> poll();
  /// Waits until poll() has results, or until `deadline`.
  std::span<const Result> wait(Time deadline);

  // Blocking forms. They throw the error of an operation that fails, and Error(kTimeout) when the
  // storage nodes do not answer in time. Other operations may be under way; their results wait for
  // poll().
  Outcome lookup(ByteView key, Bytes& value);
  Outcome insert(ByteView key, ByteView value) { return run(Kind::kInsert, key, value, nullptr); }
  Outcome update(ByteView key, ByteView value) { return run(Kind::kUpdate, key, value, nullptr); }
  Outcome remove(ByteView key) { return run(Kind::kRemove, key, {}, nullptr); }

  /// Waits until no request is in flight, also none that nobody waits for, such as those that clear
  /// removed blocks. Returns false if `deadline` passes. A client that is destroyed while requests
  /// are in flight takes its connections with it, because its memory is gone: whoever goes on with
  /// the queue pairs drains first. Operations under way go on; their results wait for poll().
  bool drain(Time deadline);

  /// Reads and doorbells so far.
  std::uint64_t reads() const { return context_->links.reads(); }
  std::uint64_t doorbells() const { return context_->links.doorbells(); }
  std::uint32_t global_depth() const { return context_->directory.global_depth(); }

 private:
  class Fetch;
  void fetch_directory();
  void check_sizes(ByteView key, ByteView value) const;
  void turn();
  Outcome run(Kind kind, ByteView key, ByteView value, Bytes* into);
  Result result_of(const Operation& operation) const;
  void reclaim();
  void take_abandoned();

  Env& env_;
  fabric::CompletionQueue& completions_;
  const TableAddress table_;
  const ClientOptions options_;
  std::unique_ptr<fabric::MemoryRegion> memory_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Splitter> splitter_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> free_, returned_, abandoned_;
  std::vector<Result> results_;
  std::uint32_t under_way_ = 0;
};

}  // namespace pyrdma::krcore::race
