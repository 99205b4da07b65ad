// Any history against any model, by name.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "check/history.h"
#include "check/linearizability.h"
#include "check/verdict.h"

namespace pyrdma::check {

/// register kv queue lock counter (by search); fifo mutex barrier multicast rpc raft (without).
std::vector<std::string> model_names();

/// Throws Error(kInvalidArgument) for a model that is not there, and for a history that is none of
/// this model.
Verdict check_history(const History& history, std::string_view model,
                      const SearchLimits& limits = {});

}  // namespace pyrdma::check
