// The words that all clients use over all their queue pairs. Each is a register: a history tells
// whether some order of the operations explains what they have returned.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "check/history.h"
#include "fuzz/scenario.h"

namespace pyrdma::krcore::scenario {

class Registers {
 public:
  /// An operation on a word of a life of a node begins. Returns its number. One that does not end
  /// may have happened, or happen at any time.
  std::uint64_t begin(Time now, NodeId node, std::uint32_t life, std::uint32_t word,
                      check::Function f, std::int64_t value);
  /// It has happened, and returned `value`; of a write, nothing.
  void ok(Time now, std::uint64_t number, check::Value value);
  /// A read that has returned nothing.
  void fail(Time now, std::uint64_t number);
  void judge(fuzz::Outcome& outcome, const fuzz::Options& options, Time now) const;

 private:
  void end(Time now, std::uint64_t number, check::EventType type, check::Value value);
  struct Open {
    std::size_t event = 0;
    std::int32_t process = 0;
  };
  std::vector<check::Event> events_;
  std::map<std::uint64_t, Open> open_;
  std::set<std::int32_t> free_processes_;
  std::int32_t processes_ = 0;
  std::uint64_t begun_ = 0;
};

}  // namespace pyrdma::krcore::scenario
