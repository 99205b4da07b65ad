#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace pyrdma::base {

void fail_check(const char* file, int line, const char* text, const std::string& values) {
  std::fprintf(stderr, "pyrdma: bug: %s:%d: %s is false%s%s\n", file, line, text,
               values.empty() ? "" : ": ", values.c_str());
  std::abort();
}

}  // namespace pyrdma::base
