// Deliberate bugs. Tests switch one on to show that the checks find it. Each function returns the
// correct decision, unless its bug is on.
#pragma once
#include <cstdint>

namespace pyrdma::tailwind {

enum class Bug : std::uint8_t {
  kNone,
  kClosedBeforeNextIsOpen,  // then a crash leaves no head
  kDataBeforeLastIsClosed,  // then an open segment with a gap is behind the head
  kVersionNotRaised,        // a backup that comes back has an old replica
  kCommitsWithoutConsent,   // of the coordinator
  kCopyIsValidAtOnce,
  kReadDoesNotWait,        // for the commit of what it has read
  kResultNotKept,          // then an update that is sent again happens again
  kTombstoneCleanedEarly,  // while the log has the object
  kBufferNotZeroed,        // before its next use: what was there looks like the new replica's
  kBufferKeepsKey,         // so who wrote to it before can still do so
};

class Bugs {
 public:
  constexpr Bugs(Bug bug = Bug::kNone) : bug_(bug) {}  // NOLINT: a bug is a hook by itself
  bool waits_for_next() const { return !is(Bug::kClosedBeforeNextIsOpen); }
  bool waits_for_last() const { return !is(Bug::kDataBeforeLastIsClosed); }
  bool raises_version() const { return !is(Bug::kVersionNotRaised); }
  bool waits_for_consent() const { return !is(Bug::kCommitsWithoutConsent); }
  bool marks_copies() const { return !is(Bug::kCopyIsValidAtOnce); }
  bool reads_wait() const { return !is(Bug::kReadDoesNotWait); }
  bool keeps_results() const { return !is(Bug::kResultNotKept); }
  bool keeps_tombstones() const { return !is(Bug::kTombstoneCleanedEarly); }
  bool zeroes_buffers() const { return !is(Bug::kBufferNotZeroed); }
  bool renews_keys() const { return !is(Bug::kBufferKeepsKey); }

 private:
  bool is(Bug bug) const { return bug_ == bug; }
  Bug bug_;
};

}  // namespace pyrdma::tailwind
