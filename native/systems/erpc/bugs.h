// Deliberate bugs, most of them taken from the public program or from other RPC systems. Tests
// switch one on to show that the checks find it. The protocol asks Bugs at the steps that a bug
// changes. A question costs one comparison of a constant.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pyrdma::erpc {

enum class Bug : std::uint8_t {
  kNone,
  kExecutesAgain,        // a repeated request is a new one to the server
  kPieceByResponseSize,  // the place of a response's piece follows from the response's length alone
  kNoDrainAtClient,      // the NIC may still read a request that was sent again
  kNoDrainAtServer,      // the NIC may still read a response that was sent again
  kCreditsLost,          // a rollback does not give the credits back
  kCreditsDoubled,       // a rollback gives them back twice
  kDeathIgnored,         // the requests of a dead server never end
  kGenerationIgnored,    // packets of an earlier session with the same number are taken
  kOrderIgnored,         // any packet of the request is taken for the next one
  kOlderResponseTaken,   // the answer to an older request of the slot is taken
  kWheelIgnored,         // a request may end while the wheel has a packet of it
  kSizeTrusted,          // the length of a response is not tested against its buffer
  kLostInBacklog,        // a lost session forgets the requests that wait for a slot
  kCreditNotReturned,    // the last packet of a response returns no credit
  kOlderRequestTaken,    // a request with a lower number than the slot's is a new one
  kDeadClientKept,       // the server's half of a session outlives a silent client
  kAnyPingAnswered,      // a server answers for sessions that it does not have
  kNotSentClaimed,       // a lost session says of requests that it sent that they were not
  kNumbersRunOut,        // the numbers of requests do not go round
  kCopiesMeasured,       // the answer to a packet that was sent twice gives a round trip
  kSenderNotChecked,     // a session takes packets of any sender
  kOlderSessionsKept,    // a new endpoint of a name leaves the sessions of the old one as they are
  kLateConnectTaken,     // a late connect of an old endpoint ends the sessions of the new one
  kRefusalIsFinal,       // a session that the server has no room for now is lost at once
  kOwnSlotFirst,         // a returned credit goes to the request that it came from, or after it
};

/// The names of the bugs after kNone, for `pyrdma fuzz erpc --mutation`.
inline constexpr std::array<std::string_view, 25> kBugNames{
    "executes_again",     "piece_by_response_size", "no_drain_at_client",  "no_drain_at_server",
    "credits_lost",       "credits_doubled",        "death_ignored",       "generation_ignored",
    "order_ignored",      "older_response_taken",   "wheel_ignored",       "size_trusted",
    "lost_in_backlog",    "credit_not_returned",    "older_request_taken", "dead_client_kept",
    "any_ping_answered",  "not_sent_claimed",       "numbers_run_out",     "copies_measured",
    "sender_not_checked", "older_sessions_kept",    "late_connect_taken",  "refusal_is_final",
    "own_slot_first"};

class Bugs {
 public:
  constexpr Bugs(Bug bug = Bug::kNone) : bug_(bug) {}  // NOLINT: a bug is a hook by itself
  /// Returns the bug with this name; nothing for an unknown name.
  static constexpr Bugs named(std::string_view name) {
    for (std::size_t i = 0; i < kBugNames.size(); ++i) {
      if (kBugNames[i] == name) return static_cast<Bug>(i + 1);
    }
    return {};
  }
  bool none() const { return bug_ == Bug::kNone; }
  bool has(Bug bug) const { return __builtin_expect(static_cast<long>(bug_ == bug), 0L) != 0; }

 private:
  Bug bug_;
};

}  // namespace pyrdma::erpc
