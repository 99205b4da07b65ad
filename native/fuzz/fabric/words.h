// What happened to the words that are changed by atomics alone, and whether it can be explained.
//
// Always checked, in near-linear time: fetch-and-adds of 1 return each number once, in an order
// that agrees with real time, and leave the right total; a compare-and-swap to unique values
// succeeds at most once from each value, from a value that existed. Of every few words the whole
// history goes to the linearizability checker.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace pyrdma::fuzz {

struct AtomicOperation {
  Time invoked = 0;
  Time returned = kForever;                 // kForever: nobody knows whether it happened
  std::uint64_t old = 0;                    // when it returned
  std::uint64_t expected = 0, desired = 0;  // of a compare-and-swap
  std::uint32_t client = 0;
  std::uint32_t operation = 0;

  bool known() const { return returned != kForever; }
};

/// One word, in one life of its node.
struct AtomicWord {
  std::uint32_t node = 0, incarnation = 0, index = 0;
  bool counter = false;
  std::optional<std::uint64_t> last;  // what it held at the end, where the node lived to see it
  std::vector<AtomicOperation> operations;

  std::string name() const;
};

/// What is wrong with a word, or nothing.
std::string complaint_of_counter(const AtomicWord& word);
std::string complaint_of_register(const AtomicWord& word);

}  // namespace pyrdma::fuzz
