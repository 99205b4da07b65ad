// A litmus test is a tiny concurrent program over raw fabric operations, written as text.
//
//   locations  "x@1 a@0 b@1:64 c@1:relaxed d@2=1"  x is a word of node 1, b has 64 bytes, c lies
//              in relaxed-ordering memory, d is initially 1. The first and last word of b are
//              watched as b.0 and b.1.
//   threads    "0: put x 1; put f 1 | 1: load r0 f; load r1 x"    node: instruction; ...
//   observed   "r0 r1 x"                            registers, and words in the final memory
//
// In the instructions, X is a location or word of the thread's own node, Y a location of another
// node, S an X or a number, r a register. `#name` after an operation chooses one of several queue
// pairs to the same node. `.fence` and `.inline` set the request's flags:
//   store X n   load r X   ladd r X n   lcas r X n n   mfence   wait X n    CPU operations
//   put Y S     get X Y    fadd X Y n   cas X Y n n    send N               posted requests
//   recv N      waits for a send from node N, by the queue pair of that name
//   poll        waits for all requests that the thread has posted so far
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pyrdma::measure::litmus {

using Value = std::uint8_t;

/// Outcome holds a byte for each observed register and word, the first one lowest.
using Outcome = std::uint64_t;

inline constexpr std::size_t kMaxThreads = 4, kMaxNodes = 4, kMaxWords = 16, kMaxRegisters = 8,
                             kMaxRequests = 12, kMaxObserved = 8;
inline constexpr Value kMaxValue = 7;
inline constexpr std::uint32_t kMaxLocationBytes = 64 * 1024;

enum class Op : std::uint8_t {
  kStore,
  kLoad,
  kLocalAdd,
  kLocalSwap,
  kLocalFence,
  kWait,
  kPut,
  kGet,
  kAdd,
  kSwap,
  kSend,
  kReceive,
  kPoll,
};

struct Location {
  std::string name;
  std::uint8_t node = 0;
  Value initial = 0;
  bool relaxed = false;
  std::uint32_t bytes = 8;
  std::uint8_t first_word = 0;  // index among the program's words
  std::uint8_t words = 1;       // watched words: 1, or 2 of a longer location
};

struct Instruction {
  Op op = Op::kPoll;
  std::uint8_t word = 0;     // CPU operations
  std::uint8_t remote = 0;   // location; put, get, add, swap
  std::uint8_t local = 0;    // location; put from memory, get, add, swap
  std::uint8_t reg = 0;      // load, ladd, lcas
  std::uint8_t queue = 0;    // requests: index in Program::queues; recv: the sender's
  std::uint8_t request = 0;  // number of a request in the program
  bool from_memory = false;  // put
  bool is_inline = false, fence = false;
  Value value = 0, expected = 0;

  bool is_request() const { return op >= Op::kPut && op <= Op::kSend; }
  bool returns_data() const { return op == Op::kGet || op == Op::kAdd || op == Op::kSwap; }
};

/// Queue is a thread's queue pair to a node.
struct Queue {
  std::uint8_t thread = 0, from = 0, to = 0;
  std::string name;
  std::uint8_t channel = 0;  // number among the connections of the two nodes
};

struct TestThread {
  std::uint8_t node = 0;
  std::vector<Instruction> code;
};

struct Observed {
  std::string name;
  bool is_register = false;
  std::uint8_t index = 0;   // index of the register or word
  std::uint8_t thread = 0;  // thread of a register
};

struct Program {
  std::vector<Location> locations;
  std::vector<TestThread> threads;
  std::vector<Queue> queues;
  std::vector<Observed> observed;
  std::uint8_t nodes = 0, words = 0, registers = 0, requests = 0;

  const Location& location_of(std::uint8_t word) const;
  /// Returns the text of an outcome, such as "r0=1 x=0".
  std::string text(Outcome outcome) const;
  /// Returns the outcome that text() prints so. Throws Error(kInvalidArgument).
  Outcome outcome(std::string_view text) const;
};

/// Throws Error(kInvalidArgument) naming the wrong word.
Program parse(std::string_view locations, std::string_view threads, std::string_view observed);

}  // namespace pyrdma::measure::litmus
