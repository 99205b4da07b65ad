// An operation on the store under way, as a small state machine: one thread has as many at a time
// as its window allows.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "systems/loco/kvstore/slot.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco {

class KvStore;

/// Of one caller's thread; used again for one operation after the other. Does not move while one is
/// under way.
class KvOperation {
 public:
  KvOperation(KvStore& store, Caller& me) : store_(&store), me_(&me) {}

  // Each starts an operation; the one before must be over. A value is copied.
  void lookup(Key key);
  void insert(Key key, std::span<const std::byte> value);
  void update(Key key, std::span<const std::byte> value);
  void remove(Key key);

  /// Goes as far as it can without blocking; true when the operation is over. Makes no progress by
  /// itself where callers poll: Manager::turn() and waits do. Throws Error(kUnavailable) when a
  /// node does not answer, and Error(kTimeout) after the manager's wait_timeout, naming who holds
  /// it up; a change may then have happened or not. `now` as in AcquireOp::poll().
  bool poll(Time now = 0) { return step_ == Step::kOver || advance(now); }
  bool over() const { return step_ == Step::kOver; }
  Outcome outcome() const { return outcome_; }
  /// What a lookup found, until the next start.
  std::span<const std::byte> value() const;

 private:
  enum class Step : std::uint8_t {
    kOver,
    kReading,     // lookup: the slot is on its way
    kRetrying,    // lookup: the slot was torn
    kLocking,     // changes: for the key's lock
    kAnnouncing,  // insert, remove: for room in the tracker
    kTelling,     // insert, remove: for all indices
    kWriting,     // update, remove: for the write to be placed
    kReleasing,   // changes: for the release of the key's lock, where that is awaited
  };
  enum class Kind : std::uint8_t { kLookup, kInsert, kUpdate, kRemove };

  void start(Kind kind, Key key);
  bool take(std::span<const std::byte> value);
  void begin_locked();
  bool advance(Time now = 0);
  bool locked();
  bool end(Outcome outcome);
  bool unlock(Outcome outcome);
  AckKey release();
  void post(std::span<fabric::WorkRequest> requests);
  void post_write(std::uint32_t offset, std::uint32_t bytes, bool placed);
  fabric::WorkRequest write_request(const fabric::Sge& from, std::uint32_t offset) const;
  void check_answer(const char* what, NodeId node);
  void check_timeout(const std::string& what);

  bool find();  // lookup.cc
  bool judge(const std::byte* slot);
  bool insert_locked();  // insert.cc
  bool publish();
  bool post_unplaced();
  bool update_locked();  // update.cc
  bool remove_locked();  // remove.cc
  bool forget();
  bool announce();  // tracker.cc
  bool told();

  KvStore* store_;
  Caller* me_;
  Step step_ = Step::kOver;
  Kind kind_ = Kind::kLookup;
  Outcome outcome_ = Outcome::kPending;
  Key key_ = 0;
  Location at_;
  std::uint64_t told_ = 0;  // position in the tracker behind this operation's message
  Time retrying_ = 0;       // since when, if at all
  MemRef slot_;             // what is read or written; before the key, which ends first
  AckKey ack_;
  AcquireOp lock_;
  bool holds_lock_ = false;
};

}  // namespace pyrdma::loco
