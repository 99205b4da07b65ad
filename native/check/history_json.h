// Histories as JSON Lines, as Jepsen's checkers read them. The first line is a header; each further
// line is an event,
//   {"index":0,"time":120,"process":3,"type":"invoke","f":"write","key":7,"value":42}
// with "node", "epoch" and "op" where they are set. Values are null, true, whole numbers, texts,
// and lists of these ([expected, new] of a compare-and-swap).
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "check/history.h"

namespace pyrdma::check {

std::string to_json(const History& history);

struct ReadLimits {
  std::size_t line_bytes = 1 << 20;
  std::size_t events = 20'000'000;  // about 2 GB of memory
};

struct ParsedHistory {
  History history;
  std::string error;     // names the fault and the expectation; empty: all was read
  std::size_t line = 0;  // line of the error, from 1
  std::size_t column = 0;
  bool ok() const { return error.empty(); }
  std::string message() const;  // "line 3, column 17: ..."
};

/// Strict about the fields above; ignores others. The header may be missing. Events of a process
/// that is a text (Jepsen's nemesis) are left out. Safe on any input.
ParsedHistory parse_history(std::string_view text, const ReadLimits& limits = {});

}  // namespace pyrdma::check
