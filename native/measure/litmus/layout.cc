#include "measure/litmus/layout.h"

#include <algorithm>

namespace pyrdma::measure::litmus {
namespace {

constexpr std::size_t kMostBytes = 2 << 20;  // limit for the places of one location
constexpr std::uint32_t kFewestRounds = 16;

std::size_t in_lines(std::size_t bytes) {
  constexpr std::size_t line = Layout::kCacheLineBytes;
  return (bytes + line - 1) / line * line;
}

}  // namespace

Layout::Layout(const Program& program, std::uint32_t batch) : rounds(batch) {
  for (const Location& location : program.locations) {
    strides.push_back(in_lines(location.bytes));
    constant_bytes = std::max<std::size_t>(constant_bytes, location.bytes);
    const auto most = static_cast<std::uint32_t>(kMostBytes / strides.back());
    rounds = std::min(rounds, std::max(kFewestRounds, most));
  }
  plain.fill(in_lines(kControlBytes + (kMaxValue + std::size_t{1}) * constant_bytes));
  relaxed.fill(Layout::kCacheLineBytes);
  const auto take = [](std::size_t& end, std::size_t bytes) {
    const std::size_t offset = end;
    end += in_lines(bytes);
    return offset;
  };
  std::size_t longest = program.registers * kWord;
  for (std::size_t i = 0; i < program.locations.size(); ++i) {
    const Location& location = program.locations[i];
    offsets.push_back(
        take((location.relaxed ? relaxed : plain)[location.node], rounds * strides[i]));
    longest = std::max(longest, strides[i]);
  }
  const auto add = [&](std::uint8_t node, const TestThread* thread, std::size_t index) {
    const std::size_t registers = take(plain[node], rounds * program.registers * kWord);
    agents.push_back(
        {node, agents_on[node]++, thread, registers, static_cast<std::uint8_t>(index)});
  };
  for (std::size_t t = 0; t < program.threads.size(); ++t)
    add(program.threads[t].node, &program.threads[t], t);
  for (std::uint8_t node = 0; node < program.nodes; ++node)
    if (agents_on[node] == 0) add(node, nullptr, 0);
  staging = take(plain[0], rounds * longest);
  receives.resize(program.queues.size());
  for (const TestThread& thread : program.threads)
    for (const Instruction& code : thread.code)
      if (code.op == Op::kSend) receives[code.queue] += rounds;
  for (const Queue& queue : program.queues) {
    ++channels[queue.from][queue.to];
    ++channels[queue.to][queue.from];
  }
}

}  // namespace pyrdma::measure::litmus
