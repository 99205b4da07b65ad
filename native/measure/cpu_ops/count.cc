// Counts instructions: a tracer lets a child process take one at a time.
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "measure/cpu_ops/code.h"
#include "measure/cpu_ops/cpu_ops.h"

namespace pyrdma::measure {
namespace {

constexpr int kRefused = 1, kRan = 0;

[[noreturn]] void throw_refused() {
  throw Error(ErrorCode::kUnavailable,
              "calibrate counts the instructions of a child process by ptrace, which this system "
              "refuses; in a container, allow the capability SYS_PTRACE");
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw_refused();
  return status;
}

std::uint64_t steps_of(std::uint64_t passes) {
  RequestCode code;
  code.run(4096);  // maps all pages, and reaches the steady state
  const pid_t child = fork();
  if (child < 0) throw_refused();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kRefused);
    raise(SIGSTOP);
    code.run(passes);
    _exit(kRan);
  }
  std::uint64_t steps = 0;
  int status = wait_for(child);
  for (; WIFSTOPPED(status); ++steps, status = wait_for(child)) {
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) == 0) continue;
    kill(child, SIGKILL);
    wait_for(child);
    throw_refused();
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != kRan) throw_refused();
  return steps;
}

}  // namespace

double code_instructions() {
  constexpr std::uint64_t kPasses = 64;  // all requests, in the states that they alternate between
  return static_cast<double>(steps_of(kPasses + 1) - steps_of(1)) / kPasses;
}

}  // namespace pyrdma::measure
