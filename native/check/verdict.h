// The verdict of a checker on a history.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "check/operations.h"

namespace pyrdma::check {

enum class Answer { kYes, kNo, kUnknown };  // kUnknown: the search gave up

/// WindowOperation is an operation of the smallest window that cannot be explained.
struct WindowOperation {
  Operation op;
  bool optional = false;    // the contradiction stands without its end
  int place = -1;           // place in the longest order found, from 0; -1: absent
  bool impossible = false;  // it must come next and cannot
};

struct Verdict {
  Answer answer = Answer::kYes;
  std::string model;
  std::string text;  // explains a violation or an unknown answer to people
  Value key;         // key of the object
  std::vector<WindowOperation> window;
  bool from_anywhere = false;         // the window is impossible for every earlier content
  std::vector<std::uint32_t> events;  // indices of the events in question
  std::uint64_t operations = 0;
  std::uint64_t objects = 0;         // number of objects, checked one by one
  std::uint64_t configurations = 0;  // configurations that the search visited
};

/// Reads "write 3", "read -> 1", "cas [1 2] -> ?".
std::string describe(const History& history, const Operation& op);
/// Reads "process 3, events 4 and 9".
std::string where(const Operation& op);

}  // namespace pyrdma::check
