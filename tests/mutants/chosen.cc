// Turns a mutant on in the native tests: the one that the environment variable PYRDMA_MUTANT names.
#include <cstdlib>

#include "chosen_mutant.h"

namespace {

[[maybe_unused]] const bool is_read = [] {
  const char* given = std::getenv("PYRDMA_MUTANT");
  if (given != nullptr) {
    pyrdma::mutants::chosen = static_cast<unsigned>(std::strtoul(given, nullptr, 10));
  }
  return true;
}();

}  // namespace
