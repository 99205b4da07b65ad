#include "check/check.h"

#include <array>
#include <set>

#include "base/error.h"
#include "base/quote.h"
#include "check/invariants/barriers.h"
#include "check/invariants/fifo.h"
#include "check/invariants/locks.h"
#include "check/invariants/multicast.h"
#include "check/invariants/raft.h"
#include "check/invariants/rpc.h"

namespace pyrdma::check {

namespace {

struct Invariant {
  const char* name;
  MaybeViolation (*check)(const History&, const Operations&);
  std::vector<Function> functions;  // the operations that the check looks at
};

const std::array<Invariant, 6>& invariants() {
  static const std::array<Invariant, 6> all = {{
      {"fifo", check_fifo, {Function::kEnq, Function::kDeq}},
      {"mutex", check_locks, {Function::kLock, Function::kUnlock}},
      {"barrier", check_barriers, {Function::kBarrier}},
      {"multicast", check_multicast, {Function::kBcast, Function::kDeliver, Function::kView}},
      {"rpc", check_rpc, {Function::kRpc, Function::kExec}},
      {"raft",
       check_raft,
       {Function::kLeader, Function::kFollower, Function::kAppend, Function::kTruncate,
        Function::kCommit, Function::kApply, Function::kSnapshot, Function::kRecover}},
  }};
  return all;
}

constexpr std::array kSearched = {ModelKind::kRegister, ModelKind::kKv,      ModelKind::kQueue,
                                  ModelKind::kLock,     ModelKind::kCounter, ModelKind::kMap};

Verdict check_invariant(const History& history, const Invariant& invariant) {
  if (history.header.clock_bound > 0 && invariant.check == check_locks)
    throw Error(ErrorCode::kInvalidArgument,
                "the operations' ends are widened by the clocks' bound of " +
                    std::to_string(history.header.clock_bound) +
                    " ns, but the model mutex looks at the moments of grants; give the model lock");
  const Operations paired = pair_operations(history);
  if (!paired.error.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "event " + std::to_string(paired.error_event) + ": " + paired.error);
  Verdict verdict;
  verdict.model = invariant.name;
  const std::set<Function> looks_at(invariant.functions.begin(), invariant.functions.end());
  for (const Operation& op : paired.all) verdict.operations += looks_at.count(op.f);
  for (const std::uint32_t at : paired.points)
    verdict.operations += looks_at.count(history.events()[at].f);
  if (verdict.operations == 0 && !history.events().empty())
    throw Error(ErrorCode::kInvalidArgument, std::string("no event is an operation of the model ") +
                                                 invariant.name + " (the first is " +
                                                 to_string(history.events().front().f) +
                                                 "); choose another with --model");
  verdict.objects = 1;
  MaybeViolation found = invariant.check(history, paired);
  if (!found) return verdict;
  verdict.answer = Answer::kNo;
  verdict.text = found->text + '\n';
  verdict.events = std::move(found->events);
  for (const Operation& op : found->operations) {
    verdict.window.push_back({op});
    verdict.key = op.key;
  }
  if (!verdict.window.empty()) verdict.window.back().impossible = true;
  return verdict;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelKind kind : kSearched) names.emplace_back(to_string(kind));
  for (const Invariant& invariant : invariants()) names.emplace_back(invariant.name);
  return names;
}

Verdict check_history(const History& history, std::string_view model, const SearchLimits& limits) {
  if (const auto kind = model_named(model)) return check_linearizability(history, *kind, limits);
  for (const Invariant& invariant : invariants())
    if (model == invariant.name) return check_invariant(history, invariant);
  std::string names;
  for (const std::string& name : model_names()) names += ' ' + name;
  throw Error(ErrorCode::kInvalidArgument,
              "unknown model " + in_quotes(model, '"') + "; give one of" + names);
}

}  // namespace pyrdma::check
