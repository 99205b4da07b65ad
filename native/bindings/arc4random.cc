// libstdc++ is linked statically, and one that was built with glibc 2.36 or newer calls
// `arc4random`. The module would then need such a glibc, which Ubuntu 22.04 lacks. This hidden
// function of the same name serves the call with what older systems have.
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) std::uint32_t arc4random() noexcept {
  std::uint32_t value = 0;
  // The kernel gives so few bytes whole, or an error.
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
    if (errno != EINTR) std::abort();
  }
  return value;
}
