// Random histories for the tests of the checkers, made with a specification of their own.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "check/history.h"
#include "check/models.h"
#include "check/operations.h"

namespace pyrdma::check::testing {

inline Value i(std::int64_t value) { return Value::integer(value); }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kScale = 50;  // sanitizers see the same code on fewer histories
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr int kScale = 50;
#else
inline constexpr int kScale = 1;
#endif
#else
inline constexpr int kScale = 1;
#endif

/// A second, plain specification of an object.
struct Spec {
  Value value;              // register, kv, counter; null is absence
  std::deque<Value> items;  // queue
  std::int64_t owner = -1;  // lock

  /// Carries the operation out and returns its result; nothing if it cannot happen now.
  std::optional<Value> execute(History& history, const Operation& op) {
    switch (op.f) {
      case Function::kAppend:
        value = history.text((value.is_none() ? "" : history.text_of(value)) +
                             history.text_of(op.input));
        return Value::none();
      case Function::kRead:
      case Function::kGet:
        return value;
      case Function::kWrite:
      case Function::kPut:
        value = op.input;
        return Value::none();
      case Function::kCas: {
        const Value before = value;
        if (before == history.element(op.input, 0)) value = history.element(op.input, 1);
        return before;
      }
      case Function::kInsert:
        if (!value.is_none()) return Value::boolean(false);
        value = op.input;
        return Value::boolean(true);
      case Function::kDelete: {
        const bool there = !value.is_none();
        value = Value::none();
        return Value::boolean(there);
      }
      case Function::kAdd:
      case Function::kFetchAdd: {
        const Value before = Value::integer(value.a);
        value = Value::integer(value.a + op.input.a);
        return op.f == Function::kAdd ? Value::none() : before;
      }
      case Function::kEnq:
        items.push_back(op.input);
        return Value::none();
      case Function::kDeq: {
        if (items.empty()) return Value::none();
        const Value front = items.front();
        items.pop_front();
        return front;
      }
      case Function::kLock:
        if (owner >= 0) return std::nullopt;
        owner = op.process;
        return Value::none();
      case Function::kUnlock:
        if (owner != op.process) return std::nullopt;
        owner = -1;
        return Value::none();
      default:
        return std::nullopt;
    }
  }
};

/// The parameters of a random history.
struct Plan {
  ModelKind kind = ModelKind::kRegister;
  int operations = 6;
  int processes = 3;
  int values = 3;  // 0: every value once
  int keys = 1;
  int info_percent = 0;  // share of operations of unknown outcome
  int fail_percent = 0;
  int lie_percent = 0;    // share of results that are drawn, not computed
  bool appends = false;   // keys hold texts, and clients append to them
  bool renumber = false;  // new process number after an unknown outcome, as Jepsen's clients have
};

/// Runs clients against the Spec, each operation taking effect at a random moment of its interval.
class Maker {
 public:
  Maker(const Plan& plan, Rng& rng)
      : plan_(plan), rng_(rng), clients_(static_cast<std::size_t>(plan.processes)) {
    for (Client& client : clients_) client.process = processes_++;
    if (plan.kind == ModelKind::kRegister) specs_[0].value = Value::none();
    if (plan.kind == ModelKind::kCounter)
      for (int key = 0; key < plan.keys; ++key) specs_[key].value = Value::integer(0);
  }

  History make() {
    int idle_turns = 0;
    while (begun_ < plan_.operations || busy() > 0) {
      const auto who = static_cast<std::size_t>(rng_.below(clients_.size()));
      turn(clients_[who].process, clients_[who]);
      if (++idle_turns > 100 * plan_.operations) break;  // all remaining clients wait for a lock
    }
    return std::move(history_);
  }

 private:
  struct Client {
    enum { kIdle, kCalled, kDone, kGone } state = kIdle;
    std::int32_t process = 0;
    Operation op;
    Value result;
    bool holds = false;
  };

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(bound)));
  }
  bool percent(int p) { return static_cast<int>(rng_.below(100)) < p; }
  int busy() const {
    int n = 0;
    for (const Client& c : clients_) n += c.state == Client::kCalled || c.state == Client::kDone;
    return n;
  }

  void turn(std::int32_t process, Client& client) {
    now_ += 1 + static_cast<Time>(rng_.below(50));
    if (client.state == Client::kIdle && begun_ < plan_.operations) {
      client.op = draw(process, client);
      ++begun_;
      history_.invoke(now_, process, client.op.f, client.op.key, client.op.input);
      client.state = Client::kCalled;
    } else if (client.state == Client::kCalled) {
      take_effect(process, client);
    } else if (client.state == Client::kDone) {
      end(process, EventType::kOk, client);
    }
  }

  void take_effect(std::int32_t process, Client& client) {
    if (percent(plan_.fail_percent)) return end(process, EventType::kFail, client);
    const bool unknown = percent(plan_.info_percent);
    if (!unknown || percent(50)) {
      const auto result = specs_[client.op.key.a].execute(history_, client.op);
      if (!result && !unknown && !percent(plan_.lie_percent)) return;  // waits for a lock
      client.result = result.value_or(Value::none());
      // A null result would mean that the cas has swapped.
      if (client.op.f == Function::kCas && client.result.is_none())
        client.result = Value::boolean(false);
      if (result && client.op.f == Function::kLock) client.holds = true;
      if (result && client.op.f == Function::kUnlock) client.holds = false;
    }
    if (!unknown) {
      client.state = Client::kDone;
    } else if (percent(50)) {
      end(process, EventType::kInfo, client);
    } else {
      client.state = Client::kGone;  // the history gets no end of the operation
    }
  }

  void end(std::int32_t process, EventType type, Client& client) {
    Value result = type == EventType::kOk ? client.result : Value::none();
    // Public logs of stores with appends have the empty text for an absent key.
    if (plan_.appends && type == EventType::kOk && client.op.f == Function::kGet &&
        result.is_none() && percent(50))
      result = history_.text("");
    if (type == EventType::kOk && percent(plan_.lie_percent)) result = lie(client.op);
    history_.complete(now_, process, type, client.op.f, client.op.key, result);
    const bool gone = type == EventType::kInfo;
    client.state = gone && !plan_.renumber ? Client::kGone : Client::kIdle;
    if (gone && plan_.renumber) client.process = processes_++;
  }

  Value any_value() {
    if (plan_.appends && plan_.values == 0)
      return history_.text("x " + std::to_string(++last_value_) + " y");
    if (plan_.appends) {
      const auto letter = static_cast<char>('a' + below(plan_.values));
      return history_.text(std::string(static_cast<std::size_t>(1 + below(2)), letter));
    }
    if (plan_.values == 0) return Value::integer(++last_value_);
    return Value::integer(1 + below(plan_.values));
  }

  Value lie(const Operation& op) {
    switch (op.f) {
      case Function::kInsert:
      case Function::kDelete:
        return Value::boolean(percent(50));
      case Function::kWrite:
      case Function::kPut:
      case Function::kAdd:
      case Function::kEnq:
      case Function::kLock:
      case Function::kUnlock:
        return Value::none();
      case Function::kAppend:
        return Value::none();
      default:
        if (plan_.appends && percent(80)) {
          const Value one = any_value();
          if (!percent(50)) return one;
          const Value other = any_value();  // a new text moves the others
          return history_.text(history_.text_of(one) + history_.text_of(other));
        }
        if (percent(20) && plan_.kind != ModelKind::kCounter) return Value::none();
        return Value::integer(static_cast<std::int64_t>(rng_.below(
            static_cast<std::uint64_t>(plan_.values == 0 ? last_value_ + 3 : plan_.values + 1))));
    }
  }

  Operation draw(std::int32_t process, const Client& client) {
    Operation op;
    op.process = process;
    if (plan_.keys > 1) op.key = Value::integer(below(plan_.keys));
    op.f = draw_function(client);
    switch (op.f) {
      case Function::kWrite:
      case Function::kPut:
      case Function::kInsert:
      case Function::kEnq:
      case Function::kAppend:
        op.input = any_value();
        break;
      case Function::kCas: {
        const Value seen = specs_[op.key.a].value;  // random values would hardly ever match
        const std::int64_t expected = percent(60) && seen.is_integer() ? seen.a : any_value().a;
        op.input = Value::pair(expected, any_value().a);
        break;
      }
      case Function::kAdd:
      case Function::kFetchAdd:
        op.input = Value::integer(static_cast<std::int64_t>(rng_.below(3)));
        break;
      default:
        break;
    }
    return op;
  }

  Function draw_function(const Client& client) {
    static constexpr Function kRegister[] = {Function::kRead, Function::kRead, Function::kWrite,
                                             Function::kWrite, Function::kCas};
    static constexpr Function kKv[] = {Function::kGet,    Function::kGet,    Function::kPut,
                                       Function::kInsert, Function::kDelete, Function::kCas};
    static constexpr Function kText[] = {Function::kGet,    Function::kGet,    Function::kPut,
                                         Function::kAppend, Function::kAppend, Function::kDelete};
    static constexpr Function kQueue[] = {Function::kEnq, Function::kDeq};
    static constexpr Function kCounter[] = {Function::kAdd, Function::kFetchAdd, Function::kRead};
    switch (plan_.kind) {
      case ModelKind::kRegister:
        return kRegister[rng_.below(5)];
      case ModelKind::kKv:
        if (plan_.appends) return kText[rng_.below(6)];
        return kKv[rng_.below(6)];
      case ModelKind::kQueue:
        return kQueue[rng_.below(2)];
      case ModelKind::kCounter:
        return kCounter[rng_.below(3)];
      case ModelKind::kLock:
      case ModelKind::kMap:  // has tests of its own
        break;
    }
    // With lies, a client may lock a lock that it holds or unlock a lock that it does not hold.
    const bool unlock = percent(plan_.lie_percent) ? percent(50) : client.holds;
    return unlock ? Function::kUnlock : Function::kLock;
  }

  const Plan& plan_;
  Rng& rng_;
  std::vector<Client> clients_;
  std::map<std::int64_t, Spec> specs_;
  History history_;
  int begun_ = 0;
  std::int32_t processes_ = 0;
  Time now_ = 0;
  std::int64_t last_value_ = 0;
};

inline History make_history(const Plan& plan, Rng& rng) { return Maker(plan, rng).make(); }

/// Returns a history with random results and outcomes.
inline History make_nonsense(Plan plan, Rng& rng) {
  plan.lie_percent = 100;
  return Maker(plan, rng).make();
}

}  // namespace pyrdma::check::testing
