// Agent is a thread of a litmus test on its node. It runs rounds when node 0 commands.
#pragma once
#include <vector>

#include "measure/litmus/node.h"

namespace pyrdma::measure::litmus {

/// Command is node 0's message and the agents' answer: the test and its phase in the low bits, a
/// number above. It is one word, because words are never torn.
struct Command {
  static constexpr std::uint64_t kStop = ~std::uint64_t{0} >> 16;
  static std::uint64_t make(std::uint16_t tag, std::uint64_t number) { return number << 16 | tag; }
  static std::uint16_t tag(std::uint64_t word) { return static_cast<std::uint16_t>(word); }
  static std::uint64_t number(std::uint64_t word) { return word >> 16; }
  static std::uint16_t first_tag(std::size_t test) { return static_cast<std::uint16_t>(test << 8); }
  static std::uint16_t next_tag(std::uint16_t tag) {
    return static_cast<std::uint16_t>((tag & 0xff00) | ((tag + 1) & 0xff));
  }
};

class Agent {
 public:
  /// `test` numbers the tests of a run, below 256.
  Agent(Node& node, const Program& program, const Layout& layout, std::size_t agent,
        std::size_t test);

  /// Takes part in one phase; returns false when node 0 has ended the test. Odd phases clear the
  /// memory; their number sets the period of rounds. Even phases run a batch that begins at the
  /// time of their number, and answer the median duration of a round.
  bool take_part();

 private:
  struct Step {
    const Instruction* code;
    std::byte* word = nullptr;  // target of a CPU operation, in round 0
    std::size_t word_stride = 0;
    Connection* connection = nullptr;
    NodeId peer = 0;
    std::size_t queue = 0;  // index in used_
    fabric::WorkRequest request;
    fabric::Sge local;
    std::size_t remote_stride = 0, local_stride = 0;
  };
  struct Used {
    Connection* connection;
    NodeId peer;
    std::uint32_t outstanding = 0;
  };

  void prepare(const Instruction& code);
  void prepare_request(Step& step);
  void clear();
  void post_receives();
  Time run_batch(Time start);
  void run_round(std::uint32_t round);
  void run_cpu(const Step& step, std::uint32_t round);
  void post(Step& step, std::uint32_t round);
  void await_all();
  void flush();
  void pause_before(Time limit);
  void answer(std::uint64_t number);

  Node& node_;
  const Program& program_;
  const Layout& layout_;
  std::size_t index_;
  const AgentPlace& place_;
  std::vector<Step> steps_;
  std::vector<Used> used_;
  std::vector<Time> durations_;
  Rng rng_;
  Time period_ = 0;  // period of rounds; 0: no pauses
  std::uint16_t tag_;
};

}  // namespace pyrdma::measure::litmus
