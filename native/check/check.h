// Checks any history against any model, by name.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "check/history.h"
#include "check/linearizability.h"
#include "check/verdict.h"

namespace pyrdma::check {

/// Names the models. A search decides register, kv, queue, lock, counter and map; passes without a
/// search decide fifo, mutex, barrier, multicast, rpc and raft.
std::vector<std::string> model_names();

/// Throws Error(kInvalidArgument) for an unknown model, and for a history that does not fit the
/// model.
Verdict check_history(const History& history, std::string_view model,
                      const SearchLimits& limits = {});

}  // namespace pyrdma::check
