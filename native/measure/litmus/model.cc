#include "measure/litmus/model.h"

#include <array>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "base/error.h"

namespace pyrdma::measure::litmus {
namespace {

constexpr std::size_t kMaxStates = 4'000'000;
constexpr std::size_t kBuffered = 4;  // stores and posts in a store buffer
constexpr std::uint8_t kPosts = 0x80;

/// Each bit stands for a word of the request's location.
struct Request {
  std::uint8_t posted, fetched, sampled, executed, landed, pending;
  Value value[2];
};

/// State consists of bytes only, so that states compare and hash as memory.
struct State {
  std::array<Value, kMaxWords> memory;
  std::array<Value, kMaxRegisters> registers;
  std::array<std::uint8_t, kMaxThreads> at, buffered;
  struct Buffered {
    std::uint8_t what;  // a word, or kPosts + a request
    Value value;
  };
  std::array<std::array<Buffered, kBuffered>, kMaxThreads> buffer;
  std::array<Request, kMaxRequests> requests;

  bool operator==(const State& other) const {
    return std::memcmp(this, &other, sizeof(State)) == 0;
  }
};
static_assert(std::has_unique_object_representations_v<State>);

struct HashState {
  std::size_t operator()(const State& state) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&state), sizeof(State)});
  }
};

class Explorer {
 public:
  Explorer(const Program& program, Level level) : program_(program), level_(level) {
    code_.resize(program.requests);
    owner_.resize(program.requests);
    for (std::size_t t = 0; t < program.threads.size(); ++t) {
      for (const Instruction& instruction : program.threads[t].code) {
        if (!instruction.is_request()) continue;
        code_[instruction.request] = &instruction;
        owner_[instruction.request] = t;
      }
    }
  }

  std::unordered_set<Outcome> run() {
    State start{};
    for (const Location& location : program_.locations)
      for (std::size_t i = 0; i < location.words; ++i)
        start.memory[location.first_word + i] = location.initial;
    visit(start);
    while (!open_.empty()) {
      const State state = open_.back();
      open_.pop_back();
      const std::size_t before = steps_;
      for (std::size_t t = 0; t < program_.threads.size(); ++t) step_thread(state, t);
      for (std::size_t r = 0; r < code_.size(); ++r)
        if (state.requests[r].posted) step_request(state, r);
      if (steps_ == before) end(state);
    }
    return outcomes_;
  }

 private:
  bool late() const { return level_ >= Level::kLate; }
  bool buffers() const { return level_ >= Level::kStoreBuffer; }

  void visit(const State& state) {
    ++steps_;
    if (!seen_.insert(state).second) return;
    if (seen_.size() > kMaxStates)
      throw Error(ErrorCode::kInvalidArgument, "litmus program: it has more than " +
                                                   std::to_string(kMaxStates) +
                                                   " states; use fewer instructions");
    open_.push_back(state);
  }

  void end(const State& state) {
    for (std::size_t t = 0; t < program_.threads.size(); ++t) {
      if (state.at[t] != program_.threads[t].code.size())
        throw Error(
            ErrorCode::kInvalidArgument,
            "litmus program: thread " + std::to_string(t) +
                " may wait forever; make sure that every wait has a matching store or send");
    }
    Outcome outcome = 0;
    for (std::size_t i = 0; i < program_.observed.size(); ++i) {
      const Observed& observed = program_.observed[i];
      const Value value =
          observed.is_register ? state.registers[observed.index] : state.memory[observed.index];
      outcome |= Outcome{value} << 8 * i;
    }
    outcomes_.insert(outcome);
  }

  // --- The CPU ---

  Value load(const State& state, std::size_t t, std::uint8_t word) const {
    for (std::size_t i = state.buffered[t]; i-- > 0;)
      if (state.buffer[t][i].what == word) return state.buffer[t][i].value;
    return state.memory[word];
  }

  void step_thread(const State& state, std::size_t t) {
    if (state.buffered[t] != 0) drain_store(state, t);
    const std::vector<Instruction>& code = program_.threads[t].code;
    if (state.at[t] == code.size()) return;
    const Instruction& i = code[state.at[t]];
    const bool empty = state.buffered[t] == 0;
    State next = state;
    ++next.at[t];
    Value& word = next.memory[i.word];
    switch (i.op) {
      case Op::kStore:
        if (!buffer(next, t, i.word, i.value)) return;
        break;
      case Op::kLoad:
        next.registers[i.reg] = load(state, t, i.word);
        break;
      case Op::kLocalAdd:
        if (!empty) return;
        next.registers[i.reg] = word;
        word = static_cast<Value>(word + i.value);
        break;
      case Op::kLocalSwap:
        if (!empty) return;
        next.registers[i.reg] = word;
        if (word == i.expected) word = i.value;
        break;
      case Op::kLocalFence:
        if (!empty) return;
        break;
      case Op::kWait:
        if (load(state, t, i.word) != i.value) return;
        break;
      case Op::kReceive:
        if (!has_arrived(state, t, i)) return;
        break;
      case Op::kPoll:
        for (std::size_t r = 0; r < code_.size(); ++r)
          if (owner_[r] == t && is_before(*code_[r], i, t) && !is_complete(state, r)) return;
        break;
      default:
        if (i.op == Op::kPut && (i.is_inline || !i.from_memory)) {
          Request& request = next.requests[i.request];
          for (std::uint8_t w = 0; w < words(i); ++w)
            request.value[w] = i.from_memory ? load(state, t, source(i, w)) : i.value;
          request.fetched = all(i);
        }
        if (level_ == Level::kSequential)
          execute_at_once(next, i);
        else if (!buffer(next, t, static_cast<std::uint8_t>(kPosts | i.request), 0))
          return;
    }
    visit(next);
  }

  /// Returns false when the store buffer is full: the thread stalls until the buffer drains.
  bool buffer(State& state, std::size_t t, std::uint8_t what, Value value) const {
    if (!buffers()) {
      take_effect(state, what, value);
      return true;
    }
    if (state.buffered[t] == kBuffered) return false;
    state.buffer[t][state.buffered[t]++] = {what, value};
    return true;
  }

  void drain_store(const State& state, std::size_t t) {
    State next = state;
    const State::Buffered first = next.buffer[t][0];
    auto& entries = next.buffer[t];
    for (std::size_t i = 1; i < kBuffered; ++i) entries[i - 1] = entries[i];
    entries[kBuffered - 1] = {};
    --next.buffered[t];
    take_effect(next, first.what, first.value);
    visit(next);
  }

  static void take_effect(State& state, std::uint8_t what, Value value) {
    if ((what & kPosts) != 0)
      state.requests[what & ~kPosts].posted = 1;
    else
      state.memory[what] = value;
  }

  bool is_before(const Instruction& request, const Instruction& poll, std::size_t t) const {
    const Instruction* begin = program_.threads[t].code.data();
    return &request - begin < &poll - begin;
  }

  // The k-th receive of a thread from a queue pair takes the k-th send.
  bool has_arrived(const State& state, std::size_t t, const Instruction& receive) const {
    int arrived = 0;
    for (std::size_t r = 0; r < code_.size(); ++r)
      arrived += code_[r]->op == Op::kSend && code_[r]->queue == receive.queue &&
                 state.requests[r].executed;
    for (const Instruction& i : program_.threads[t].code) {
      if (&i == &receive) break;
      arrived -= i.op == Op::kReceive && i.queue == receive.queue;
    }
    return arrived > 0;
  }

  // --- Requests ---

  std::uint8_t words(const Instruction& i) const {
    return i.op == Op::kSend ? std::uint8_t{0} : program_.locations[i.remote].words;
  }
  std::uint8_t all(const Instruction& i) const {
    return static_cast<std::uint8_t>((1U << words(i)) - 1);
  }
  std::uint8_t source(const Instruction& i, std::uint8_t w) const {
    return static_cast<std::uint8_t>(program_.locations[i.local].first_word + w);
  }
  std::uint8_t target(const Instruction& i, std::uint8_t w) const {
    return static_cast<std::uint8_t>(program_.locations[i.remote].first_word + w);
  }
  static bool is_atomic(const Instruction& i) { return i.op == Op::kAdd || i.op == Op::kSwap; }

  void execute_at_once(State& state, const Instruction& i) const {
    Request& request = state.requests[i.request];
    for (std::uint8_t w = 0; w < words(i); ++w) {
      Value& there = state.memory[target(i, w)];
      if (i.op == Op::kPut)
        there = i.from_memory ? state.memory[source(i, w)] : i.value;
      else
        state.memory[source(i, w)] = there;
      if (i.op == Op::kAdd) there = static_cast<Value>(there + i.value);
      if (i.op == Op::kSwap && there == i.expected) there = i.value;
    }
    request = {};
    request.executed = 1;
    request.landed = all(i);
  }

  /// Calls `test` for every earlier request of r's queue pair until it returns false.
  template <class Test>
  bool earlier(std::size_t r, Test test) const {
    for (std::size_t e = 0; e < r; ++e)
      if (code_[e]->queue == code_[r]->queue && !test(e)) return false;
    return true;
  }

  bool has_landed(const State& state, std::size_t r) const {
    return state.requests[r].executed &&
           (!code_[r]->returns_data() || state.requests[r].landed == all(*code_[r]));
  }
  bool is_complete(const State& state, std::size_t r) const {
    return has_landed(state, r) && earlier(r, [&](std::size_t e) { return has_landed(state, e); });
  }

  /// Returns whether no fence holds the request or an earlier one back.
  bool may_start(const State& state, std::size_t r) const {
    const auto passes = [&](std::size_t f) {
      return !code_[f]->fence || earlier(f, [&](std::size_t e) {
        return !code_[e]->returns_data() || is_complete(state, e);
      });
    };
    return passes(r) && earlier(r, passes);
  }

  /// The last reading of a get may come after a later request has taken effect. Responses are in
  /// order, so later gets read after it.
  bool may_read_later(std::size_t get, std::size_t r) const {
    return level_ >= Level::kRepeated && code_[get]->op == Op::kGet && code_[r]->op != Op::kGet;
  }

  /// Returns whether an atomic of another request is between its read and its write.
  bool is_locked(const State& state, std::uint8_t word, std::size_t r) const {
    for (std::size_t q = 0; q < code_.size(); ++q)
      if (q != r && is_atomic(*code_[q]) && state.requests[q].pending != 0 &&
          target(*code_[q], 0) == word)
        return true;
    return false;
  }

  /// Takes each bit of `todo` in a step of its own when memory is late, and all bits in one step
  /// otherwise.
  template <class Step>
  void pieces(const State& state, std::uint8_t todo, Step step) {
    if (!late()) {
      State next = state;
      for (std::uint8_t w = 0; w < 2; ++w)
        if ((todo >> w & 1) != 0) step(next, w);
      if (todo != 0) visit(next);
      return;
    }
    for (std::uint8_t w = 0; w < 2; ++w) {
      if ((todo >> w & 1) == 0) continue;
      State next = state;
      step(next, w);
      visit(next);
    }
  }

  static std::uint8_t without(std::uint8_t all, std::uint8_t done) {
    return static_cast<std::uint8_t>(all & ~done);
  }

  void step_request(const State& state, std::size_t r) {
    const Instruction& i = *code_[r];
    const Request& now = state.requests[r];
    if (!now.executed && may_start(state, r)) {
      if (i.op == Op::kPut) {
        pieces(state, without(all(i), now.fetched), [&](State& next, std::uint8_t w) {
          next.requests[r].value[w] = next.memory[source(i, w)];
          next.requests[r].fetched |= static_cast<std::uint8_t>(1U << w);
        });
      }
      if (earlier(r, [&](std::size_t e) {
            return state.requests[e].executed != 0 || may_read_later(e, r);
          }))
        execute(state, r);
    }
    if (i.returns_data()) land(state, r);
    place(state, r);
  }

  void execute(const State& state, std::size_t r) {
    const Instruction& i = *code_[r];
    const Request& now = state.requests[r];
    State next = state;
    Request& then = next.requests[r];
    if (i.op == Op::kPut) {
      if (now.fetched != all(i)) return;
      then.executed = 1;
      then.pending = all(i);
      if (!late()) write_all(next, r);
      return visit(next);
    }
    // All other requests first make the queue pair's writes visible.
    if (!earlier(r, [&](std::size_t e) { return state.requests[e].pending == 0; })) return;
    if (i.op == Op::kSend) {
      then.executed = 1;
      return visit(next);
    }
    if (i.op == Op::kGet) {
      std::uint8_t todo = without(all(i), now.sampled);
      for (std::uint8_t w = 0; w < words(i); ++w)
        if (is_locked(state, target(i, w), r))
          todo = without(todo, static_cast<std::uint8_t>(1U << w));
      if (!late() && todo != all(i)) return;
      return pieces(state, todo, [&](State& after, std::uint8_t w) {
        Request& request = after.requests[r];
        request.value[w] = after.memory[target(i, w)];
        request.sampled |= static_cast<std::uint8_t>(1U << w);
        request.executed = request.sampled == all(i);
      });
    }
    if (is_locked(state, target(i, 0), r)) return;
    const Value old = state.memory[target(i, 0)];
    then.executed = 1;
    then.sampled = 1;
    then.value[0] = old;
    then.value[1] = i.op == Op::kAdd ? static_cast<Value>(old + i.value) : i.value;
    then.pending = i.op == Op::kAdd || old == i.expected;
    if (!late()) write_all(next, r);
    visit(next);
  }

  void land(const State& state, std::size_t r) {
    const Instruction& i = *code_[r];
    const Request& now = state.requests[r];
    // Without late landing the data arrives with the completion, and completions are in order.
    if (!late() &&
        (!now.executed || !earlier(r, [&](std::size_t e) { return has_landed(state, e); })))
      return;
    pieces(state, without(now.sampled, now.landed), [&](State& next, std::uint8_t w) {
      next.memory[source(i, w)] = next.requests[r].value[w];
      next.requests[r].landed |= static_cast<std::uint8_t>(1U << w);
    });
  }

  void write(State& state, std::size_t r, std::uint8_t w) const {
    Request& request = state.requests[r];
    state.memory[target(*code_[r], w)] = is_atomic(*code_[r]) ? request.value[1] : request.value[w];
    request.pending = without(request.pending, static_cast<std::uint8_t>(1U << w));
  }
  void write_all(State& state, std::size_t r) const {
    for (std::uint8_t w = 0; w < 2; ++w)
      if ((state.requests[r].pending >> w & 1) != 0) write(state, r, w);
  }

  // Written words reach memory in the order of the queue pair's requests. With relaxed ordering a
  // write may pass writes, but not atomics (ibv_reg_mr(3)).
  void place(const State& state, std::size_t r) {
    const Instruction& i = *code_[r];
    const bool may_pass = i.op == Op::kPut && program_.locations[i.remote].relaxed;
    if (!earlier(r, [&](std::size_t e) {
          return state.requests[e].pending == 0 || (may_pass && !is_atomic(*code_[e]));
        }))
      return;
    for (std::uint8_t w = 0; w < 2; ++w) {
      if ((state.requests[r].pending >> w & 1) == 0 || is_locked(state, target(i, w), r)) continue;
      State next = state;
      write(next, r, w);
      visit(next);
    }
  }

  const Program& program_;
  Level level_;
  std::vector<const Instruction*> code_;  // instruction of each request
  std::vector<std::size_t> owner_;        // thread of each request
  std::unordered_set<State, HashState> seen_;
  std::vector<State> open_;
  std::unordered_set<Outcome> outcomes_;
  std::size_t steps_ = 0;
};

}  // namespace

const char* to_string(Level level) {
  constexpr const char* kNames[] = {"sequential", "asynchronous", "late",
                                    "repeated",   "store buffer", "forbidden"};
  return kNames[static_cast<std::size_t>(level)];
}

std::map<Outcome, Level> classify(const Program& program) {
  std::map<Outcome, Level> levels;
  for (const Level level : {Level::kSequential, Level::kAsynchronous, Level::kLate,
                            Level::kRepeated, Level::kStoreBuffer}) {
    for (const Outcome outcome : Explorer(program, level).run()) levels.try_emplace(outcome, level);
  }
  return levels;
}

}  // namespace pyrdma::measure::litmus
