// What a checker says of a history.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "check/operations.h"

namespace pyrdma::check {

enum class Answer { kYes, kNo, kUnknown };  // unknown: the search was given up

/// An operation of the smallest window that cannot be explained.
struct WindowOperation {
  Operation op;
  bool optional = false;    // the contradiction does not need its end: it may as well be open
  int place = -1;           // in the longest order found, from 0; -1: not in it
  bool impossible = false;  // it had to come next, and cannot
};

struct Verdict {
  Answer answer = Answer::kYes;
  std::string model;
  std::string text;  // of a violation or of what is unknown: for people
  Value key;         // of the object it is about
  std::vector<WindowOperation> window;
  bool from_anywhere = false;         // the window is impossible whatever the object held before
  std::vector<std::uint32_t> events;  // indices of the events it is about
  std::uint64_t operations = 0;
  std::uint64_t objects = 0;         // checked one by one
  std::uint64_t configurations = 0;  // that the search met
};

/// "write 3", "read -> 1", "cas [1 2] -> ?".
std::string describe(const History& history, const Operation& op);
/// "process 3, events 4 and 9".
std::string where(const Operation& op);

}  // namespace pyrdma::check
