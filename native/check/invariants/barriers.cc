#include "check/invariants/barriers.h"

#include <map>
#include <tuple>

#include "base/error.h"
#include "check/verdict.h"

namespace pyrdma::check {

namespace {

struct Round {
  const Operation* last_in = nullptr;
  const Operation* first_out = nullptr;
  std::int64_t entered_before_out = 0;
  std::int64_t entered = 0;
  std::int64_t parties = -1;
};

}  // namespace

MaybeViolation check_barriers(const History& history, const Operations& operations) {
  using Name = std::tuple<int, std::int64_t, std::int64_t, std::int64_t>;
  std::map<Name, Round> rounds;
  const auto round_of = [&](const Operation& op) -> Round& {
    const bool pair = op.input.kind == Value::Kind::kPair;
    if (!pair && !op.input.is_integer())
      throw Error(ErrorCode::kInvalidArgument,
                  "event " + std::to_string(op.call) + ": barrier has the value " +
                      history.show(op.input) + "; it must be the round, or [round, parties]");
    Round& round = rounds[{static_cast<int>(op.key.kind), op.key.a, op.key.b, op.input.a}];
    if (pair) round.parties = op.input.b;
    return round;
  };
  for (const Operation& op : operations.all) {
    history.poll();
    if (op.f != Function::kBarrier) continue;
    Round& round = round_of(op);
    round.last_in = &op;
    ++round.entered;
    if (op.known() && (round.first_out == nullptr || op.ret < round.first_out->ret))
      round.first_out = &op;
  }
  for (const Operation& op : operations.all) {
    if (op.f != Function::kBarrier) continue;
    Round& round = round_of(op);
    if (round.first_out != nullptr && op.call < round.first_out->ret) ++round.entered_before_out;
  }
  for (const auto& [name, round] : rounds) {
    const std::string text = "round " + std::to_string(std::get<3>(name)) + ": ";
    if (round.parties >= 0 && round.entered > round.parties)
      return violation_of(text + std::to_string(round.entered) + " entered a barrier of " +
                              std::to_string(round.parties) + ", the last of them " +
                              where(*round.last_in),
                          {*round.last_in});
    if (round.first_out == nullptr) continue;
    if (round.last_in->call > round.first_out->ret)
      return violation_of(
          text + where(*round.first_out) + " left before " + where(*round.last_in) + " entered",
          {*round.first_out, *round.last_in});
    if (round.entered_before_out < round.parties)
      return violation_of(text + where(*round.first_out) + " left when " +
                              std::to_string(round.entered_before_out) + " of " +
                              std::to_string(round.parties) + " had entered",
                          {*round.first_out});
  }
  return std::nullopt;
}

}  // namespace pyrdma::check
