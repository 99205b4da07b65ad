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

namespace pyrdma::measure {

namespace {

using namespace litmus;
using Int = std::int64_t;
using loco::Caller;

constexpr std::uint64_t kStride = 64;          // bytes from a word of one round to the next
constexpr std::size_t kMailboxes = 16;         // after the words, one for each queue
constexpr Time kPeriod = 40 * kMicrosecond;    // time per round
constexpr std::uint64_t kLongestPause = 2000;  // ns, between two instructions
constexpr std::uint64_t kLongestDelay = 6000;  // ns, before the first

struct Play {
  Env& env;
  const Program& program;
  loco::SharedRegion &words, &registers;
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
class Player {
 public:
  Player(Play& play, Caller& me, std::size_t thread, Rng rng)
      : play_(play),
        me_(me),
        thread_(play.program.threads[thread]),
        registers_(thread * kMaxRegisters),
        rng_(rng) {}

  void run_batch() {
    for (std::uint64_t round = 0; round < play_.rounds; ++round) {
      play_.env.sleep_until(play_.start + static_cast<Time>(round) * kPeriod +
                            static_cast<Time>(rng_.below(kLongestDelay)));
      sent_.fill(0);
      received_.fill(0);
      for (const Instruction& code : thread_.code) {
        if (rng_.below(2) == 0) play_.env.work(static_cast<Time>(rng_.below(kLongestPause)));
        play_.env.charge(Cost::kPredicate);
        play_.env.now();  // makes earlier events visible
        run(code, round);
      }
    }
  }

 private:
  void run(const Instruction& code, std::uint64_t round) {
    const NodeId self = play_.env.node();
    std::uint64_t& result = reinterpret_cast<std::uint64_t*>(
        play_.registers.local())[(registers_ + code.reg) * play_.rounds + round];
    switch (code.op) {
      case Op::kStore:
        return store(code.word, round, code.value);
      case Op::kLoad:
        result = load_acquire(play_.here(code.word, round));
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
        const Location& to = play_.program.locations[code.remote];
        if (!code.from_memory) return write(to.node, to.first_word, round, code.value);
        const std::uint64_t from = play_.offset(first_word(code.local), round);
        return release(play_.words.write(me_, to.node, play_.offset(to.first_word, round),
                                         play_.words.sge(from, 8)));
      }
      case Op::kGet: {
        const Location& from = play_.program.locations[code.remote];
        const loco::MemRef block = me_.block(8);
        finish(
            play_.words.read(me_, from.node, play_.offset(from.first_word, round), block.sge(8)));
        return store(first_word(code.local), round, *block.as<std::uint64_t>());
      }
      case Op::kAdd: {
        const Location& at = play_.program.locations[code.remote];
        return store(first_word(code.local), round, add(at.node, at.first_word, round, code.value));
      }
      case Op::kSwap: {
        const Location& at = play_.program.locations[code.remote];
        return store(first_word(code.local), round,
                     swap(at.node, at.first_word, round, code.expected, code.value));
      }
      case Op::kSend:
        return write(play_.program.queues[code.queue].to, kMaxWords + code.queue, round,
                     ++sent_[code.queue]);
      case Op::kReceive:
        return await(kMaxWords + code.queue, round, ++received_[code.queue]);
      case Op::kPoll:
        return;  // every operation has completed
    }
  }

  std::uint8_t first_word(std::uint8_t location) const {
    return play_.program.locations[location].first_word;
  }
  void finish(loco::AckKey key) const {
    const fabric::Status status = key.wait();
    if (status != fabric::Status::kSuccess)
      throw Error(ErrorCode::kUnavailable,
                  std::string("loco_litmus: a request failed: ") + to_string(status), false);
  }
  void release(loco::AckKey key) {
    finish(std::move(key));
    if (me_.fence_thread() != fabric::Status::kSuccess)
      throw Error(ErrorCode::kUnavailable, "loco_litmus: a fence failed", false);
  }
  void write(NodeId node, std::size_t word, std::uint64_t round, std::uint64_t value) {
    const loco::MemRef block = me_.block(8);
    *block.as<std::uint64_t>() = value;
    release(play_.words.write(me_, node, play_.offset(word, round), block.sge(8)));
  }
  void store(std::uint8_t word, std::uint64_t round, std::uint64_t value) {
    if (play_.atomic_words.count(word) != 0) return write(play_.env.node(), word, round, value);
    store_release(play_.here(word, round), value);
  }
  std::uint64_t add(NodeId node, std::uint8_t word, std::uint64_t round, std::uint64_t addend) {
    const loco::MemRef old = me_.block(8);
    finish(
        me_.fetch_add(node, play_.words.at(node), play_.offset(word, round), addend, old.sge(8)));
    return *old.as<std::uint64_t>();
  }
  std::uint64_t swap(NodeId node, std::uint8_t word, std::uint64_t round, std::uint64_t expected,
                     std::uint64_t desired) {
    const loco::MemRef old = me_.block(8);
    finish(me_.compare_swap(node, play_.words.at(node), play_.offset(word, round), expected,
                            desired, old.sge(8)));
    return *old.as<std::uint64_t>();
  }
  void await(std::size_t word, std::uint64_t round, std::uint64_t value) {
    const std::uint64_t* at = play_.here(word, round);
    me_.wait_until([&] { return load_acquire(at) >= value; }, "a word of a litmus test");
  }

  Play& play_;
  Caller& me_;
  const TestThread& thread_;
  std::size_t registers_;  // its first register in the region
  Rng rng_;
  std::array<std::uint64_t, kMailboxes> sent_{}, received_{};
};

class LocoLitmus final : public Workload {
 public:
  std::span<const ParameterSpec> parameters() const override {
    static const std::vector<ParameterSpec> specs = {
        {"rounds", Int{200}, "count", "rounds of each shape, at least", 1, 1e9},
        {"batch", Int{100}, "count", "rounds between two meetings of the nodes", 1, 4096},
    };
    return specs;
  }

  void run(Env& env, const Params& params, Recorder& recorder) override {
    if (env.nodes() != kMaxNodes) throw_parameter(params, "nodes", "the shapes need 4 nodes");
    loco::ManagerOptions options;
    options.name = params.key("loco");
    options.callers = kMaxThreads;
    const std::uint64_t batch = params.count("batch");
    loco::Manager manager(env, options);
    loco::SharedRegion words(manager, "words", (kMaxWords + kMailboxes) * batch * kStride);
    loco::SharedRegion registers(manager, "registers", kMaxThreads * kMaxRegisters * batch * 8);
    loco::SharedRegion gathered(manager, "gathered", words.bytes());
    loco::Barrier barrier(manager, "meet");
    manager.wait_for_ready();
    Caller& me = manager.caller(0);
    for (const Shape& shape : shapes()) {
      const Program program = parse(shape.locations, shape.threads, shape.observed);
      if (std::any_of(program.locations.begin(), program.locations.end(),
                      [](const Location& location) { return location.bytes != 8; }))
        continue;
      Play play{env, program, words, registers, batch};
      find_atomic_words(play);
      std::map<Outcome, std::uint64_t> seen;
      for (Int rounds = 0; rounds < params.integer("rounds"); rounds += static_cast<Int>(batch)) {
        clear(play);
        barrier.wait(me);
        play_batch(play, manager, shape.name);
        barrier.wait(me);
        if (env.node() == 0) gather(play, me, gathered, seen);
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
  static void find_atomic_words(Play& play) {
    for (const TestThread& thread : play.program.threads) {
      for (const Instruction& code : thread.code) {
        if (code.op == Op::kLocalAdd || code.op == Op::kLocalSwap) {
          play.atomic_words.insert(code.word);
        } else if (code.op == Op::kAdd || code.op == Op::kSwap) {
          play.atomic_words.insert(play.program.locations[code.remote].first_word);
        }
      }
    }
  }

  static void clear(const Play& play) {
    std::fill_n(play.words.local(), play.words.bytes(), std::byte{0});
    for (const Location& location : play.program.locations) {
      for (std::uint64_t round = 0; round < play.rounds; ++round)
        store_release(play.here(location.first_word, round), std::uint64_t{location.initial});
    }
  }

  static void play_batch(Play& play, loco::Manager& manager, const std::string& name) {
    // All nodes have left the barrier within microseconds, so they agree on the next round number.
    play.start = (play.env.now() / kPeriod + 3) * kPeriod;
    std::vector<std::unique_ptr<Player>> players;
    for (std::size_t thread = 0; thread < play.program.threads.size(); ++thread) {
      if (play.program.threads[thread].node != play.env.node()) continue;
      const std::string number = std::to_string(players.size());
      players.push_back(
          std::make_unique<Player>(play, manager.caller(static_cast<std::uint32_t>(players.size())),
                                   thread, play.env.rng("litmus/" + name + '/' + number)));
    }
    std::vector<std::unique_ptr<Thread>> threads;
    for (std::size_t i = 1; i < players.size(); ++i)
      threads.push_back(
          play.env.spawn("player" + std::to_string(i), [&players, i] { players[i]->run_batch(); }));
    if (!players.empty()) players[0]->run_batch();
    for (const auto& thread : threads) thread->join();
  }

  // Node 0 reads the observations of all nodes.
  void gather(const Play& play, Caller& me, const loco::SharedRegion& into,
              std::map<Outcome, std::uint64_t>& seen) {
    std::vector<Outcome> outcomes(play.rounds);
    for (std::size_t i = 0; i < play.program.observed.size(); ++i) {
      const Observed& what = play.program.observed[i];
      const loco::SharedRegion& from = what.is_register ? play.registers : play.words;
      const NodeId node = what.is_register ? play.program.threads[what.thread].node
                                           : play.program.location_of(what.index).node;
      const std::uint64_t stride = what.is_register ? 8 : kStride;
      const std::size_t row =
          what.is_register ? what.thread * kMaxRegisters + what.index : what.index;
      const std::uint64_t begin = row * play.rounds * stride;
      const auto bytes = static_cast<std::uint32_t>(play.rounds * stride);
      if (from.read(me, node, begin, into.sge(0, bytes)).wait() != fabric::Status::kSuccess)
        throw Error(ErrorCode::kUnavailable,
                    "loco_litmus: node " + std::to_string(node) + " does not answer", false);
      for (std::uint64_t round = 0; round < play.rounds; ++round) {
        const auto value = *reinterpret_cast<std::uint64_t*>(into.local() + round * stride);
        outcomes[round] |= (value & 0xff) << (8 * i);
      }
    }
    for (const Outcome outcome : outcomes) ++seen[outcome];
    rounds_ += play.rounds;
  }

  void add_rows(const Shape& shape, const Program& program,
                const std::map<Outcome, std::uint64_t>& seen, Recorder& recorder) {
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

std::unique_ptr<Workload> make_loco_litmus() { return std::make_unique<LocoLitmus>(); }

}  // namespace pyrdma::measure
