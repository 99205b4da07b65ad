// A process of the operating system that does nothing.
#pragma once

namespace pyrdma {

/// Starts the program `true`, and returns when it has ended: the cost of a process start, some
/// hundred microseconds. Throws Error(kUnavailable) when the system starts none.
void run_small_process();

}  // namespace pyrdma
