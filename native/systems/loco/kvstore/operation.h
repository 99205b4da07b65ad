// An operation on the store in progress, as a small state machine. One thread has as many
// operations at a time as its window allows.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "systems/loco/kvstore/slot.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco {

class KvStore;

/// Belongs to the thread of one caller, which reuses it for one operation after the other. If it is
/// dropped while an operation is in progress, also after its error, its caller goes on with the
/// operation until the lock of its key is given back (Caller::finish_later).
class KvOperation {
 public:
  KvOperation(KvStore& store, Caller& me) : store_(&store), me_(&me) {}
  KvOperation(KvOperation&&) noexcept = default;
  ~KvOperation() {
    if (holds_lock_) [[unlikely]]
      drop();
  }

  // Each call starts an operation; the earlier operation must be over. The value is copied.
  void lookup(Key key);
  void insert(Key key, std::span<const std::byte> value);
  void update(Key key, std::span<const std::byte> value);
  void remove(Key key);

  /// Advances as far as possible without blocking; returns true when the operation is over. Where
  /// callers poll, it makes no progress of the network: Manager::turn() and waits do. Throws
  /// Error(kUnavailable) when a node does not answer, and Error(kTimeout) after the manager's
  /// wait_timeout, naming the node that delays it; a change may then have happened or not. `now` as
  /// in AcquireOp::poll().
  bool poll(Time now = 0) { return step_ == Step::kOver || advance(now); }
  bool over() const { return step_ == Step::kOver; }
  Outcome outcome() const { return outcome_; }
  /// Returns the value that a lookup found, until the next start.
  std::span<const std::byte> value() const;

 private:
  friend class Bugs;
  friend class KvStore;
  enum class Step : std::uint8_t {
    kOver,
    kReading,     // lookup: the read of the slot is in flight
    kRetrying,    // lookup: the slot was torn
    kLocking,     // changes: waits for the key's lock
    kInquiring,   // changes under a lock in doubt: the read of the slot's state is in flight
    kAnnouncing,  // insert, remove: waits for room in the tracker
    kAnnounced,   // insert, remove: waits for all indices
    kWriting,     // update, remove: waits until the write is placed
    kUnlocking,   // removal: done, and still to give back the key's lock
    kReleasing,   // changes: waits for the release of the key's lock, if it is awaited
  };
  enum class Kind : std::uint8_t { kLookup, kInsert, kUpdate, kRemove };

  void start(Kind kind, Key key);
  bool take(std::span<const std::byte> value);
  void begin_locked();
  bool advance(Time now = 0);
  bool has_lock(Time now);
  bool locked();
  bool change_locked();
  bool write_locked();
  class Dropped;
  [[gnu::cold]] void drop();
  bool end(Outcome outcome);
  bool unlock(Outcome outcome);
  AckKey release(bool in_doubt = false);
  void begin_write();
  void post(std::span<fabric::WorkRequest> requests);
  void post_write(std::uint32_t offset, std::uint32_t bytes, bool placed);
  fabric::WorkRequest write_request(const fabric::Sge& from, std::uint32_t offset) const;
  void check_answer(const char* what, NodeId node);
  bool overdue();        // it retries since wait_timeout
  void check_readers();  // throws if readers of the tracker are overdue
  /// Says why the operation is not over after wait_timeout, if this is known better than `error`,
  /// which is handled now. Throws it otherwise.
  [[noreturn]] void throw_cause(const Error& error);
  [[noreturn]] void throw_overdue(const std::string& why, const std::vector<NodeId>& blamed);

  bool inquire();  // doubt.cc
  bool settle(std::uint64_t state);
  /// Throws Error(kUnavailable), and gives the lock back, if not all indices can follow a change.
  void check_indices();
  bool end_settled();
  [[noreturn]] void throw_torn();
  bool find();  // lookup.cc
  bool judge(const std::byte* slot);
  bool insert_locked();  // insert.cc
  bool publish();
  bool update_locked();  // update.cc
  void write_update(std::uint32_t bytes);
  bool remove_locked();  // remove.cc
  bool forget();
  bool inserts() const { return kind_ == Kind::kInsert && !settles_; }
  bool announce();  // tracker.cc
  bool announced();

  KvStore* store_;
  Caller* me_;
  Step step_ = Step::kOver;
  Kind kind_ = Kind::kLookup;
  Outcome outcome_ = Outcome::kPending;
  Key key_ = 0;
  Location at_;
  std::uint64_t announced_ = 0;  // position in the tracker after this operation's message
  Time retrying_ = 0;            // start of the retries; 0: none
  InFlight slot_;                // bytes to read or write
  AcquireOp lock_;
  MovedValue<bool> holds_lock_;
  bool posted_ = false;   // the write, with all its requests
  bool settles_ = false;  // ends the removal of another operation, before its own change
  bool overdue_ = false, dropped_ = false;  // its caller has got an error; has dropped it
};

}  // namespace pyrdma::loco
