#include "env/thread/small_process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace pyrdma {

void run_small_process() {
  char name[] = "true";
  char* const arguments[] = {name, nullptr};
  pid_t child = 0;
  const int problem = posix_spawnp(&child, name, nullptr, nullptr, arguments, environ);
  if (problem != 0) {
    throw Error(ErrorCode::kUnavailable, std::string("the program 'true' does not start: ") +
                                             std::strerror(problem) +
                                             "; it must be in a folder of PATH");
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace pyrdma
