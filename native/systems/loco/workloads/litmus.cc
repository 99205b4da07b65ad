// loco_litmus: the litmus shapes through LOCO (L8). A put is a write and a fence (a release-write,
// section 5.3). A get is a read that the thread waits for. Words that atomics use are atomic_vars,
// which their own node reaches through its NIC too. So no weak outcome may be seen: none that needs
// bytes to be placed after the completion, or a read to be repeated.
//
// A send is a write to a mailbox. LOCO does not use relaxed ordering: shapes that need it run in
// LOCO's own memory. Shapes with values longer than a word are left out: LOCO keeps such values in
// owned_vars with a checksum.
#include <algorithm>
#include <atomic>
#include <set>

#include "base/error.h"
#include "base/remote_word.h"
#include "measure/litmus/shapes.h"
#include "measure/workload.h"
#include "systems/loco/barrier.h"
#include "systems/loco/shared_region.h"
#include "systems/loco/workloads/workloads.h"

namespace pyrdma::loco {

namespace {

using namespace measure::litmus;
using Int = std::int64_t;

constexpr std::uint64_t kStride = 64;          // bytes from a word of one round to the next
constexpr std::size_t kMailboxes = 16;         // after the words, one for each queue
constexpr Time kPeriod = 40 * kMicrosecond;    // time per round
constexpr std::uint64_t kLongestPause = 2000;  // ns, between two instructions
constexpr std::uint64_t kLongestDelay = 6000;  // ns, before the first

struct Trial {
  Env& env;
  const Program& program;
  SharedRegion &words, &registers;
  std::uint64_t rounds;  // rounds of a batch
  std::set<std::uint8_t> atomic_words = {};
  Time start = 0;

  std::uint64_t offset(std::size_t word, std::uint64_t round) const {
    return (word * rounds + round) * kStride;
  }
  std::uint64_t* here(std::size_t word, std::uint64_t round) const {
    return reinterpret_cast<std::uint64_t*>(words.local() + offset(word, round));
  }
};

/// A thread of a test, with its own caller.
class TrialThread {
 public:
  TrialThread(Trial& trial, Caller& me, std::size_t thread, Rng rng)
      : trial_(trial),
        me_(me),
        thread_(trial.program.threads[thread]),
        registers_(thread * kMaxRegisters),
        rng_(rng) {}

  void run_batch() {
    for (std::uint64_t round = 0; round < trial_.rounds; ++round) {
      trial_.env.sleep_until(trial_.start + static_cast<Time>(round) * kPeriod +
                             static_cast<Time>(rng_.below(kLongestDelay)));
      sent_.fill(0);
      received_.fill(0);
      for (const Instruction& code : thread_.code) {
        if (rng_.below(2) == 0) trial_.env.work(static_cast<Time>(rng_.below(kLongestPause)));
        trial_.env.now();  // makes earlier events visible
        run(code, round);
      }
    }
  }

 private:
  void run(const Instruction& code, std::uint64_t round) {
    const NodeId self = trial_.env.node();
    std::uint64_t& result = reinterpret_cast<std::uint64_t*>(
        trial_.registers.local())[(registers_ + code.reg) * trial_.rounds + round];
    switch (code.op) {
      case Op::kStore:
        return store(code.word, round, code.value);
      case Op::kLoad:
        result = load_acquire(trial_.here(code.word, round));
        return;
      case Op::kLocalAdd:
        result = add(self, code.word, round, code.value);
        return;
      case Op::kLocalSwap:
        result = swap(self, code.word, round, code.expected, code.value);
        return;
      case Op::kLocalFence:
        return std::atomic_thread_fence(std::memory_order_seq_cst);
      case Op::kWait:
        return await(code.word, round, code.value);
      case Op::kPut: {
        const Location& to = trial_.program.locations[code.remote];
        if (!code.from_memory) return write(to.node, to.first_word, round, code.value);
        const std::uint64_t from = trial_.offset(first_word(code.local), round);
        AckKey key = trial_.words.write(me_, to.node, trial_.offset(to.first_word, round),
                                        trial_.words.sge(from, 8));
        return release(key);
      }
      case Op::kGet: {
        const Location& from = trial_.program.locations[code.remote];
        InFlight word(me_.block(8));
        word.key = trial_.words.read(me_, from.node, trial_.offset(from.first_word, round),
                                     word.block.sge(8));
        finish(word.key);
        return store(first_word(code.local), round, *word.block.as<std::uint64_t>());
      }
      case Op::kAdd: {
        const Location& at = trial_.program.locations[code.remote];
        return store(first_word(code.local), round, add(at.node, at.first_word, round, code.value));
      }
      case Op::kSwap: {
        const Location& at = trial_.program.locations[code.remote];
        return store(first_word(code.local), round,
                     swap(at.node, at.first_word, round, code.expected, code.value));
      }
      case Op::kSend:
        return write(trial_.program.queues[code.queue].to, kMaxWords + code.queue, round,
                     ++sent_[code.queue]);
      case Op::kReceive:
        return await(kMaxWords + code.queue, round, ++received_[code.queue]);
      case Op::kPoll:
        return;  // every operation has completed
    }
  }

  std::uint8_t first_word(std::uint8_t location) const {
    return trial_.program.locations[location].first_word;
  }
  void finish(AckKey& key) const {
    const fabric::Status status = key.wait();
    if (status != fabric::Status::kSuccess)
      throw Error(ErrorCode::kUnavailable,
                  std::string("loco_litmus: a request failed: ") + to_string(status), false);
  }
  void release(AckKey& key) {
    finish(key);
    if (me_.fence_thread() != fabric::Status::kSuccess)
      throw Error(ErrorCode::kUnavailable, "loco_litmus: a fence failed", false);
  }
  void write(NodeId node, std::size_t word, std::uint64_t round, std::uint64_t value) {
    InFlight out(me_.block(8));
    *out.block.as<std::uint64_t>() = value;
    out.key = trial_.words.write(me_, node, trial_.offset(word, round), out.block.sge(8));
    release(out.key);
  }
  void store(std::uint8_t word, std::uint64_t round, std::uint64_t value) {
    if (trial_.atomic_words.count(word) != 0) return write(trial_.env.node(), word, round, value);
    store_release(trial_.here(word, round), value);
  }
  std::uint64_t add(NodeId node, std::uint8_t word, std::uint64_t round, std::uint64_t addend) {
    InFlight old(me_.block(8));
    old.key = me_.fetch_add(node, trial_.words.at(node), trial_.offset(word, round), addend,
                            old.block.sge(8));
    finish(old.key);
    return *old.block.as<std::uint64_t>();
  }
  std::uint64_t swap(NodeId node, std::uint8_t word, std::uint64_t round, std::uint64_t expected,
                     std::uint64_t desired) {
    InFlight old(me_.block(8));
    old.key = me_.compare_swap(node, trial_.words.at(node), trial_.offset(word, round), expected,
                               desired, old.block.sge(8));
    finish(old.key);
    return *old.block.as<std::uint64_t>();
  }
  void await(std::size_t word, std::uint64_t round, std::uint64_t value) {
    const std::uint64_t* at = trial_.here(word, round);
    me_.wait_until([&] { return load_acquire(at) >= value; }, "awaited value of a litmus test");
  }

  Trial& trial_;
  Caller& me_;
  const TestThread& thread_;
  std::size_t registers_;  // its first register in the region
  Rng rng_;
  std::array<std::uint64_t, kMailboxes> sent_{}, received_{};
};

class LocoLitmus final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = {
        {"rounds", Int{200}, "count", "rounds of each shape, at least", 1, 1e9},
        {"batch", Int{100}, "count", "rounds between two meetings of the nodes", 1, 4096},
    };
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    if (env.nodes() != kMaxNodes) throw_parameter(params, "nodes", "the shapes need 4 nodes");
    ManagerOptions options;
    options.name = params.key("loco");
    options.callers = kMaxThreads;
    const std::uint64_t batch = params.count("batch");
    Manager manager(env, options);
    SharedRegion words(manager, "words", (kMaxWords + kMailboxes) * batch * kStride,
                       kReadWrite | fabric::kRemoteAtomic);
    SharedRegion registers(manager, "registers", kMaxThreads * kMaxRegisters * batch * 8,
                           fabric::kRemoteRead);
    SharedRegion gathered(manager, "gathered", words.bytes(), 0);
    Barrier barrier(manager, "meet");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    for (const Shape& shape : shapes()) {
      const Program program = parse(shape.locations, shape.threads, shape.observed);
      if (std::any_of(program.locations.begin(), program.locations.end(),
                      [](const Location& location) { return location.bytes != 8; }))
        continue;
      Trial trial{env, program, words, registers, batch};
      find_atomic_words(trial);
      std::map<Outcome, std::uint64_t> seen;
      for (Int rounds = 0; rounds < params.integer("rounds"); rounds += static_cast<Int>(batch)) {
        clear(trial);
        barrier.wait(me);
        run_trial(trial, manager, shape.name);
        barrier.wait(me);
        if (env.node() == 0) gather(trial, me, gathered, seen);
        barrier.wait(me);
      }
      if (env.node() == 0) add_rows(shape, program, seen, recorder);
    }
    if (env.node() == 0) {
      recorder.add("shapes", "count", static_cast<double>(shapes_));
      recorder.add("rounds", "count", static_cast<double>(rounds_));
      recorder.add("beyond", "count", static_cast<double>(beyond_));
    }
    manager.leave();
  }

 private:
  static void find_atomic_words(Trial& trial) {
    for (const TestThread& thread : trial.program.threads) {
      for (const Instruction& code : thread.code) {
        if (code.op == Op::kLocalAdd || code.op == Op::kLocalSwap) {
          trial.atomic_words.insert(code.word);
        } else if (code.op == Op::kAdd || code.op == Op::kSwap) {
          trial.atomic_words.insert(trial.program.locations[code.remote].first_word);
        }
      }
    }
  }

  static void clear(const Trial& trial) {
    std::fill_n(trial.words.local(), trial.words.bytes(), std::byte{0});
    for (const Location& location : trial.program.locations) {
      for (std::uint64_t round = 0; round < trial.rounds; ++round)
        store_release(trial.here(location.first_word, round), std::uint64_t{location.initial});
    }
  }

  static void run_trial(Trial& trial, Manager& manager, const std::string& name) {
    // All nodes have left the barrier within microseconds, so they agree on the next round number.
    trial.start = (trial.env.now() / kPeriod + 3) * kPeriod;
    std::vector<std::unique_ptr<TrialThread>> runners;
    for (std::size_t thread = 0; thread < trial.program.threads.size(); ++thread) {
      if (trial.program.threads[thread].node != trial.env.node()) continue;
      const std::string number = std::to_string(runners.size());
      runners.push_back(std::make_unique<TrialThread>(
          trial, manager.caller(static_cast<std::uint32_t>(runners.size())), thread,
          trial.env.rng("litmus/" + name + '/' + number)));
    }
    std::vector<std::unique_ptr<Thread>> threads;
    for (std::size_t i = 1; i < runners.size(); ++i)
      threads.push_back(trial.env.spawn("player" + std::to_string(i),
                                        [&runners, i] { runners[i]->run_batch(); }));
    if (!runners.empty()) runners[0]->run_batch();
    for (const auto& thread : threads) thread->join();
  }

  // Node 0 reads the observations of all nodes.
  void gather(const Trial& trial, Caller& me, const SharedRegion& into,
              std::map<Outcome, std::uint64_t>& seen) {
    std::vector<Outcome> outcomes(trial.rounds);
    for (std::size_t i = 0; i < trial.program.observed.size(); ++i) {
      const Observed& what = trial.program.observed[i];
      const SharedRegion& from = what.is_register ? trial.registers : trial.words;
      const NodeId node = what.is_register ? trial.program.threads[what.thread].node
                                           : trial.program.location_of(what.index).node;
      const std::uint64_t stride = what.is_register ? 8 : kStride;
      const std::size_t row =
          what.is_register ? what.thread * kMaxRegisters + what.index : what.index;
      const std::uint64_t begin = row * trial.rounds * stride;
      const auto bytes = static_cast<std::uint32_t>(trial.rounds * stride);
      if (from.read(me, node, begin, into.sge(0, bytes)).wait() != fabric::Status::kSuccess)
        throw Error(ErrorCode::kUnavailable,
                    "loco_litmus: node " + std::to_string(node) + " does not answer", false)
            .blaming({node});
      for (std::uint64_t round = 0; round < trial.rounds; ++round) {
        const auto value = *reinterpret_cast<std::uint64_t*>(into.local() + round * stride);
        outcomes[round] |= (value & 0xff) << (8 * i);
      }
    }
    for (const Outcome outcome : outcomes) ++seen[outcome];
    rounds_ += trial.rounds;
  }

  void add_rows(const Shape& shape, const Program& program,
                const std::map<Outcome, std::uint64_t>& seen, measure::Recorder& recorder) {
    const std::map<Outcome, Level> levels = classify(program);
    ++shapes_;
    for (const auto& [outcome, count] : seen) {
      const auto found = levels.find(outcome);
      const Level level = found == levels.end() ? Level::kForbidden : found->second;
      recorder.add(std::string("outcome|") + shape.name + '|' + to_string(level) + '|' +
                       program.text(outcome),
                   "count", static_cast<double>(count));
      if (level == Level::kLate || level == Level::kRepeated || level == Level::kForbidden)
        beyond_ += count;
    }
  }

  std::uint64_t shapes_ = 0, rounds_ = 0, beyond_ = 0;
};

}  // namespace

std::unique_ptr<measure::Workload> make_litmus() { return std::make_unique<LocoLitmus>(); }

}  // namespace pyrdma::loco
