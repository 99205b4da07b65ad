// The macros assert facts about our own code and are always on. PYRDMA_CHECK(credits, >, 0) prints
// both values. Input from outside is checked by an `if`, never by these macros.
#pragma once
#include <sstream>
#include <string>

namespace pyrdma::base {

[[noreturn]] void fail_check(const char* file, int line, const char* text,
                             const std::string& values);

template <class A, class B>
[[noreturn, gnu::cold, gnu::noinline]] void fail_compare(const char* file, int line,
                                                         const char* text, const A& a, const B& b) {
  std::ostringstream values;
  values << a << " and " << b;
  fail_check(file, line, text, values.str());
}

}  // namespace pyrdma::base

#define PYRDMA_CHECK(a, op, b)                                                               \
  do {                                                                                       \
    auto&& check_a = (a);                                                                    \
    auto&& check_b = (b);                                                                    \
    if (!(check_a op check_b)) [[unlikely]]                                                  \
      ::pyrdma::base::fail_compare(__FILE__, __LINE__, #a " " #op " " #b, check_a, check_b); \
  } while (false)

#define PYRDMA_ASSERT(condition)                                                 \
  do {                                                                           \
    if (!(condition)) [[unlikely]]                                               \
      ::pyrdma::base::fail_check(__FILE__, __LINE__, #condition, std::string()); \
  } while (false)
