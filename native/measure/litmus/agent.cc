#include "measure/litmus/agent.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/assert.h"
#include "base/remote_word.h"

namespace pyrdma::measure::litmus {

Agent::Agent(Node& node, const Program& program, const Layout& layout, std::size_t agent,
             std::size_t test)
    : node_(node),
      program_(program),
      layout_(layout),
      index_(agent),
      place_(layout.agents[agent]),
      rng_(node.env().rng("litmus/" + std::to_string(test) + '/' + std::to_string(agent))),
      tag_(Command::first_tag(test)) {
  durations_.reserve(layout.rounds);
  if (place_.thread == nullptr) return;
  for (const Instruction& code : place_.thread->code) prepare(code);
  for (Step& step : steps_) step.request.sges = &step.local;  // the steps do not move any more
}

void Agent::prepare(const Instruction& code) {
  Step& step = steps_.emplace_back();
  step.code = &code;
  if (code.is_request()) return prepare_request(step);
  if (code.op == Op::kReceive) {
    const Queue& queue = program_.queues[code.queue];
    step.peer = queue.from;
    step.connection = &node_.connection(queue.from, queue.channel);
    return;
  }
  const Location& location = program_.location_of(code.word);
  const auto at = static_cast<std::size_t>(&location - program_.locations.data());
  const bool is_last = code.word != location.first_word;
  step.word = node_.region(location.relaxed).data() + layout_.offsets[at] +
              (is_last ? location.bytes - kWord : 0);
  step.word_stride = layout_.strides[at];
}

void Agent::prepare_request(Step& step) {
  const Instruction& code = *step.code;
  const Queue& queue = program_.queues[code.queue];
  step.peer = queue.to;
  step.connection = &node_.connection(queue.to, queue.channel);
  const auto known = std::find_if(used_.begin(), used_.end(), [&](const Used& used) {
    return used.connection == step.connection;
  });
  step.queue = static_cast<std::size_t>(known - used_.begin());
  if (known == used_.end()) used_.push_back({step.connection, step.peer});

  fabric::WorkRequest& request = step.request;
  request.sge_count = 1;
  request.flags =
      static_cast<std::uint8_t>(fabric::kSignaled | (code.is_inline ? fabric::kInline : 0) |
                                (code.fence ? fabric::kFence : 0));
  if (code.op == Op::kSend) {
    request.opcode = fabric::Opcode::kSend;
    request.sge_count = 0;
    return;
  }
  const Location& remote = program_.locations[code.remote];
  const fabric::RemoteRegion there = node_.remote(step.peer, remote.relaxed);
  request.remote_addr = there.addr + layout_.offsets[code.remote];
  request.rkey = there.rkey;
  step.remote_stride = layout_.strides[code.remote];
  if (code.op == Op::kPut && !code.from_memory) {
    step.local = node_.region(false).sge(layout_.constant(code.value), remote.bytes);
  } else {
    const Location& local = program_.locations[code.local];
    step.local = node_.region(local.relaxed).sge(layout_.offsets[code.local], local.bytes);
    step.local_stride = layout_.strides[code.local];
  }
  switch (code.op) {
    case Op::kGet:
      request.opcode = fabric::Opcode::kRead;
      break;
    case Op::kAdd:
      request.opcode = fabric::Opcode::kFetchAdd;
      request.compare_add = code.value;
      break;
    case Op::kSwap:
      request.opcode = fabric::Opcode::kCompareSwap;
      request.compare_add = code.expected;
      request.swap = code.value;
      break;
    default:
      request.opcode = fabric::Opcode::kWrite;
  }
}

bool Agent::take_part() {
  tag_ = Command::next_tag(tag_);
  std::uint64_t command = 0;
  const auto has_come = [&] {
    command = load_acquire(node_.word(Layout::go(index_)));
    return Command::tag(command) == tag_;
  };
  // Between two of its tests a node waits for all tests that it has no part in.
  node_.wait("node 0's command", has_come, place_.node == 0 ? &node_.commands() : nullptr,
             kLongestRun);
  const std::uint64_t number = Command::number(command);
  if (number == Command::kStop) {
    answer(0);
    return false;
  }
  if (tag_ % 2 == 0) {
    answer(static_cast<std::uint64_t>(run_batch(static_cast<Time>(number))));
    return true;
  }
  period_ = static_cast<Time>(number);
  clear();
  answer(0);
  return true;
}

void Agent::answer(std::uint64_t number) {
  const std::uint64_t word = Command::make(tag_, number);
  if (place_.node == 0) return store_release(node_.word(Layout::arrived(index_)), word);
  Connection& control = node_.control(0, place_.on_node);
  fabric::Sge from;
  from.addr = reinterpret_cast<std::uint64_t>(&word);
  from.length = sizeof word;
  fabric::WorkRequest request;
  request.sges = &from;
  request.sge_count = 1;
  request.flags = fabric::kSignaled | fabric::kInline;
  const fabric::RemoteRegion there = node_.remote(0, false);
  request.remote_addr = there.addr + Layout::arrived(index_);
  request.rkey = there.rkey;
  node_.post(*control.qp, request);
  node_.await(*control.sends, 1, 0);
}

// The first agent of a node gives every place its initial value and posts the receives.
void Agent::clear() {
  if (place_.on_node != 0) return;
  post_receives();
  for (std::size_t i = 0; i < program_.locations.size(); ++i) {
    const Location& location = program_.locations[i];
    if (location.node != place_.node) continue;
    std::uint64_t* words = node_.word(layout_.offsets[i], location.relaxed);
    for (std::size_t w = 0; w < layout_.rounds * layout_.strides[i] / kWord; ++w)
      store_release(words + w, std::uint64_t{location.initial});
  }
  for (Value value = 0; value <= kMaxValue; ++value) {
    std::uint64_t* words = node_.word(layout_.constant(value));
    for (std::size_t w = 0; w < layout_.constant_bytes / kWord; ++w) words[w] = value;
  }
}

void Agent::post_receives() {
  for (std::size_t q = 0; q < program_.queues.size(); ++q) {
    const Queue& queue = program_.queues[q];
    if (queue.to != place_.node) continue;
    Connection& connection = node_.connection(queue.from, queue.channel);
    fabric::Completion unread;
    while (connection.receives->poll({&unread, 1}) == 1) continue;
    const std::vector<fabric::ReceiveRequest> requests(layout_.receives[q]);
    const fabric::PostResult result = connection.qp->post_receive(requests);
    PYRDMA_CHECK(result.accepted, ==, requests.size());
  }
}

// Rounds begin at fixed times on the common clock of all nodes, so that their threads overlap.
// Random pauses before and between the instructions vary the overlap.
Time Agent::run_batch(Time start) {
  Env& env = node_.env();
  durations_.clear();
  for (std::uint32_t round = 0; round < layout_.rounds; ++round) {
    if (period_ != 0) {
      const Time begin = start + Time{round} * period_ +
                         static_cast<Time>(rng_.below(static_cast<std::uint64_t>(period_) * 2 / 3));
      if (env.now() < begin) env.sleep_until(begin);
    }
    const Time before = env.now();
    run_round(round);
    durations_.push_back(env.now() - before);
  }
  flush();
  const auto middle = durations_.begin() + static_cast<std::ptrdiff_t>(durations_.size() / 2);
  std::nth_element(durations_.begin(), middle, durations_.end());
  return *middle;
}

void Agent::run_round(std::uint32_t round) {
  const Time longest = period_ >> (period_ != 0 ? rng_.below(8) : 0);
  for (Step& step : steps_) {
    pause_before(longest);
    if (step.code->is_request())
      post(step, round);
    else
      run_cpu(step, round);
  }
  await_all();
}

void Agent::pause_before(Time limit) {
  if (limit == 0) return;
  const std::uint64_t draw = rng_();
  if ((draw & 1) == 0) return;
  Env& env = node_.env();
  env.work(static_cast<Time>((draw >> 1) % static_cast<std::uint64_t>(limit)));
  env.now();  // lets the events of that time happen
}

void Agent::run_cpu(const Step& step, std::uint32_t round) {
  const Instruction& code = *step.code;
  auto* word = reinterpret_cast<std::uint64_t*>(step.word + round * step.word_stride);
  std::uint64_t* result = node_.word(place_.registers) + round * program_.registers + code.reg;
  switch (code.op) {
    case Op::kStore:
      store_release(word, std::uint64_t{code.value});
      break;
    case Op::kLoad:
      *result = load_acquire(word);
      break;
    case Op::kLocalAdd:
      *result = __atomic_fetch_add(word, std::uint64_t{code.value}, __ATOMIC_ACQ_REL);
      break;
    case Op::kLocalSwap: {
      std::uint64_t found = code.expected;
      __atomic_compare_exchange_n(word, &found, std::uint64_t{code.value}, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE);
      *result = found;
      break;
    }
    case Op::kLocalFence:
      std::atomic_thread_fence(std::memory_order_seq_cst);
      break;
    case Op::kWait:
      node_.wait("a word of the test", [&] { return load_acquire(word) == code.value; });
      break;
    case Op::kReceive:
      node_.await(*step.connection->receives, 1, step.peer);
      break;
    default:
      await_all();
  }
}

void Agent::post(Step& step, std::uint32_t round) {
  const std::uint64_t remote = step.request.remote_addr, local = step.local.addr;
  step.request.remote_addr += round * step.remote_stride;
  step.local.addr += round * step.local_stride;
  node_.post(*step.connection->qp, step.request);
  step.request.remote_addr = remote;
  step.local.addr = local;
  ++used_[step.queue].outstanding;
}

void Agent::await_all() {
  for (Used& used : used_) {
    node_.await(*used.connection->sends, used.outstanding, used.peer);
    used.outstanding = 0;
  }
}

// Makes all writes of the batch visible.
void Agent::flush() {
  for (Used& used : used_) {
    fabric::Sge into = node_.region(false).sge(Layout::scratch(index_), kWord);
    fabric::WorkRequest request;
    request.opcode = fabric::Opcode::kRead;
    request.sges = &into;
    request.sge_count = 1;
    const fabric::RemoteRegion there = node_.remote(used.peer, false);
    request.remote_addr = there.addr + Layout::scratch(index_);
    request.rkey = there.rkey;
    node_.post(*used.connection->qp, request);
    ++used.outstanding;
  }
  await_all();
}

}  // namespace pyrdma::measure::litmus
