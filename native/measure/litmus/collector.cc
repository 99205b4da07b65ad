#include "measure/litmus/collector.h"

#include <algorithm>

#include "base/remote_word.h"

namespace pyrdma::measure::litmus {
namespace {

constexpr Time kLead = 10 * kMicrosecond;       // from the command to the first round of a batch
constexpr std::uint64_t kShortestPeriod = 400;  // ns
constexpr std::uint64_t kUnreadable = 255;      // stands for every greater value

}  // namespace

Collector::Collector(Node& node, const Program& program, const Layout& layout, Agent& own,
                     std::size_t test)
    : node_(node),
      program_(program),
      layout_(layout),
      own_(own),
      tag_(Command::first_tag(test)),
      batch_(layout.rounds) {}

void Collector::command(std::uint64_t number) {
  tag_ = Command::next_tag(tag_);
  const std::uint64_t word = Command::make(tag_, number);
  for (std::size_t i = 0; i < layout_.agents.size(); ++i) {
    const AgentPlace& place = layout_.agents[i];
    if (place.node == 0) {
      store_release(node_.word(Layout::go(i)), word);
      continue;
    }
    Connection& control = node_.control(place.node, place.on_node);
    fabric::Sge from;
    from.addr = reinterpret_cast<std::uint64_t>(&word);
    from.length = sizeof word;
    fabric::WorkRequest request;
    request.sges = &from;
    request.sge_count = 1;
    request.flags = fabric::kSignaled | fabric::kInline;
    const fabric::RemoteRegion there = node_.remote(place.node, false);
    request.remote_addr = there.addr + Layout::go(i);
    request.rkey = there.rkey;
    node_.post(*control.qp, request);
    node_.await(*control.sends, 1, place.node);
  }
  node_.env().notify(node_.commands());
}

std::uint64_t Collector::phase(std::uint64_t number) {
  command(number);
  own_.take_part();
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < layout_.agents.size(); ++i) {
    std::uint64_t answer = 0;
    node_.wait("an agent's answer", [&] {
      answer = load_acquire(node_.word(Layout::arrived(i)));
      return Command::tag(answer) == tag_;
    });
    largest = std::max(largest, Command::number(answer));
  }
  return largest;
}

// The first batch runs without pauses and shows how far apart rounds must begin.
void Collector::run(std::uint64_t rounds) {
  std::uint64_t period = 0;
  while (rounds_ < rounds) {
    phase(period);
    const std::uint64_t longest = phase(static_cast<std::uint64_t>(node_.env().now() + kLead));
    if (period == 0) period = std::max(kShortestPeriod, 3 * longest);
    count_batch();
  }
  phase(Command::kStop);
}

std::vector<Count> Collector::counts(std::map<Outcome, Level> levels) const {
  std::vector<Count> result;
  for (const auto& [outcome, times] : seen_) levels.try_emplace(outcome, Level::kForbidden);
  for (const auto& [outcome, level] : levels) {
    const auto found = seen_.find(outcome);
    result.push_back({outcome, level, found == seen_.end() ? 0 : found->second});
  }
  return result;
}

const std::byte* Collector::fetch(std::uint8_t node, bool relaxed, std::size_t offset,
                                  std::size_t bytes) {
  if (node == 0) return node_.region(relaxed).data() + offset;
  Connection& control = node_.control(node, 0);
  fabric::Sge into = node_.region(false).sge(layout_.staging, static_cast<std::uint32_t>(bytes));
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::kRead;
  request.sges = &into;
  request.sge_count = 1;
  const fabric::RemoteRegion there = node_.remote(node, relaxed);
  request.remote_addr = there.addr + offset;
  request.rkey = there.rkey;
  node_.post(*control.qp, request);
  node_.await(*control.sends, 1, node);
  return node_.region(false).data() + layout_.staging;
}

void Collector::count_batch() {
  std::fill(batch_.begin(), batch_.end(), Outcome{0});
  for (std::size_t i = 0; i < program_.observed.size(); ++i) {
    const Observed& observed = program_.observed[i];
    const std::byte* first = nullptr;
    std::size_t stride = 0;
    if (observed.is_register) {
      const AgentPlace& place = layout_.agents[observed.thread];
      stride = program_.registers * kWord;
      first = fetch(place.node, false, place.registers, layout_.rounds * stride) +
              observed.index * kWord;
    } else {
      const Location& location = program_.location_of(observed.index);
      const auto at = static_cast<std::size_t>(&location - program_.locations.data());
      stride = layout_.strides[at];
      first = fetch(location.node, location.relaxed, layout_.offsets[at], layout_.rounds * stride) +
              (observed.index != location.first_word ? location.bytes - kWord : 0);
    }
    for (std::uint32_t round = 0; round < layout_.rounds; ++round) {
      const std::uint64_t value =
          load_acquire(reinterpret_cast<const std::uint64_t*>(first + round * stride));
      batch_[round] |= std::min(value, kUnreadable) << 8 * i;
    }
  }
  for (const Outcome outcome : batch_) ++seen_[outcome];
  rounds_ += layout_.rounds;
}

}  // namespace pyrdma::measure::litmus
