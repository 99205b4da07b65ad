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
};

class Bugs {
 public:
  constexpr Bugs(Bug bug = Bug::kNone) : bug_(bug) {}  // NOLINT: a bug is a hook by itself
  bool waits_for_next() const { return !is(Bug::kClosedBeforeNextIsOpen); }
  bool waits_for_last() const { return !is(Bug::kDataBeforeLastIsClosed); }
  bool raises_version() const { return !is(Bug::kVersionNotRaised); }
  bool waits_for_consent() const { return !is(Bug::kCommitsWithoutConsent); }
  bool marks_copies() const { return !is(Bug::kCopyIsValidAtOnce); }

 private:
  bool is(Bug bug) const { return bug_ == bug; }
  Bug bug_;
};

}  // namespace pyrdma::tailwind
