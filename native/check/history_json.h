// Histories as JSON Lines, as Jepsen's checkers read them. The first line is a header; each further
// line is an event,
//   {"index":0,"time":120,"process":3,"type":"invoke","f":"write","key":7,"value":42}
// with "node", "epoch" and "op" where they are set. Values are null, true, whole numbers, texts,
// and lists of these ([expected, new] of a compare-and-swap).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check/history.h"
#include "check/json.h"

namespace pyrdma::check {

std::string to_json(const History& history);

struct ReadLimits {
  std::size_t line_bytes = 1 << 20;
  std::size_t events = 20'000'000;  // about 2 GB of memory
  std::uint64_t bytes = std::uint64_t{8} << 30;
};

struct ParsedHistory {
  History history;
  std::string error;     // names the fault and the expectation; empty: all was read
  std::size_t line = 0;  // line of the error, from 1
  std::size_t column = 0;
  bool ok() const { return error.empty(); }
  std::string message() const;  // "line 3, column 17: ..."
};

/// Strict about the fields above; ignores others. The header may be missing, and a byte order mark
/// of UTF-8 may come first. Events of a process that is a text (Jepsen's nemesis) are left out. The
/// time of the others must not run backwards. Safe on any input. Needs memory for the history and
/// one line, not for the whole text.
class HistoryReader {
 public:
  /// `on_poll` is that of the history.
  explicit HistoryReader(const ReadLimits& limits = {}, std::function<void()> on_poll = {})
      : limits_(limits) {
    result_.history.on_poll = std::move(on_poll);
  }
  /// Reads the next piece of the text; returns false after an error.
  bool feed(std::string_view chunk);
  ParsedHistory end();

 private:
  void add_to_line(std::string_view piece);
  void end_line();
  void add(Event event, std::int64_t index, bool of_a_client, bool has_time);
  void check_pairs();
  void refuse(const JsonError& error);

  const ReadLimits limits_;
  ParsedHistory result_;
  std::string rest_;                // of the line that has not ended yet
  std::vector<std::size_t> lines_;  // line of each event
  std::size_t line_ = 1;
  std::uint64_t bytes_ = 0;
  std::size_t blank_lines_ = 0;  // since the last event
  std::int64_t last_index_ = -1;
  Time last_time_ = 0;
  bool first_ = true;
};

/// Reads a whole text.
ParsedHistory parse_history(std::string_view text, const ReadLimits& limits = {});

}  // namespace pyrdma::check
