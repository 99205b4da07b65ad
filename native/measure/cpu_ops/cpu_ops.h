// Micro-benchmarks of this machine's CPU, in real time. `pyrdma calibrate` makes a profile of them.
// They are functions, not a workload: they need no fabric and no Env, and pin threads of their own.
#pragma once
#include <cstdint>
#include <string_view>

#include "base/units.h"

namespace pyrdma::measure {

/// Returns the nanoseconds of one operation, measured for about `duration`. The kinds are:
///   add             one of a chain of dependent additions: a cycle
///   code            one pass of the code in code.h
///   line            a load from a random line of `bytes` bytes, which waits for the load before
///   line_loaded     the same while every other core copies memory
///   atomic          a fetch-and-add to a word in the own cache
///   clock           a reading of the clock of Env::now
///   system_call     a system call that does nothing
///   context_switch  a thread wakes another one of its core and sleeps
///   process_start   a small program starts and ends
///   core_line       a line that another core has just written
/// Throws Error(kInvalidArgument) for another kind or fewer than 4096 bytes of lines, and
/// Error(kUnavailable) when the kind needs two cores and there is one.
double cpu_operation_ns(std::string_view kind, std::uint64_t bytes, Time duration);

/// Returns the instructions of one pass of the code in code.h. It traces a child process step by
/// step. Throws Error(kUnavailable) where the system forbids that.
double code_instructions();

}  // namespace pyrdma::measure
