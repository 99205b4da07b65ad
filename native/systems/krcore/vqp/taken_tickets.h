// Which long messages of a connection a receiver has taken (section 4.5). Its sender announces a
// message again until it has an answer, however late that is and whatever others send meanwhile.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace pyrdma::krcore {

/// Tickets of a connection count from 1, so what has not been taken are few ranges: those that are
/// still to come, and gaps before them.
class TakenTickets {
 public:
  /// Announcements of a connection come in order but for failures, so a correct sender leaves few.
  static constexpr std::size_t kMostGaps = 1024;

  /// Of a ticket, which is not 0.
  bool contains(std::uint64_t ticket) const {
    return ticket < next_ && gap_of(ticket) == gaps_.end();
  }
  /// Whether the ticket can be added.
  bool has_room_for(std::uint64_t ticket) const {
    return ticket != 0 && (ticket == next_ || gaps_.size() < kMostGaps);
  }
  void add(std::uint64_t ticket) {
    if (ticket >= next_) {
      if (ticket != next_) gaps_[next_] = ticket - 1;
      next_ = ticket + 1;
      return;
    }
    const auto gap = gap_of(ticket);
    if (gap == gaps_.end()) return;
    const auto [first, last] = *gap;
    gaps_.erase(gap);
    if (first != ticket) gaps_[first] = ticket - 1;
    if (last != ticket) gaps_[ticket + 1] = last;
  }
  std::size_t gaps() const { return gaps_.size(); }
  /// The first one whose message was too long for its receive; 0: none. What follows it has no end
  /// of its own: the sender's queue pair fails.
  std::uint64_t first_refused = 0;

 private:
  std::map<std::uint64_t, std::uint64_t>::const_iterator gap_of(std::uint64_t ticket) const {
    const auto after = gaps_.upper_bound(ticket);
    if (after == gaps_.begin()) return gaps_.end();
    const auto before = std::prev(after);
    return before->second >= ticket ? before : gaps_.end();
  }
  std::uint64_t next_ = 1;                       // none from this one on has been taken
  std::map<std::uint64_t, std::uint64_t> gaps_;  // the first and the last of each
};

}  // namespace pyrdma::krcore
