// A stack with a guard page that can be switched to (Boost.Context), with the annotations that the
// address sanitizer needs to follow the switch, and with its own state of C++ exception handling.
#pragma once
#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>

namespace pyrdma {

class Fiber {
 public:
  static constexpr std::size_t kStackBytes =
      256 * 1024;  // address space; only touched pages are resident

  /// An empty fiber represents the stack that first switches away from it (the external thread).
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Prepares `entry` to run at the first switch here. `entry` returns the fiber to continue when
  /// it is done. The stack that leaves by a switch notes itself in `left`: only the stack that
  /// arrives can store the context of the stack that left. One `left` per scheduler.
  void create(std::function<Fiber*()> entry, Fiber*& left);

  /// Leaves the running stack, `from`, and continues `to`. Returns when another switch goes back to
  /// `from`.
  static void switch_between(Fiber& from, Fiber& to, Fiber*& left);

  /// Prefetches the frames that the fiber will return to into the CPU's cache.
  void prefetch() const {
    if (innermost_ == nullptr) return;  // the fiber has never run
    for (int line = -2; line < 12; ++line) __builtin_prefetch(innermost_ + line * 64);
  }

 private:
  struct ExceptionState {  // the Itanium C++ ABI's __cxa_eh_globals
    void* caught = nullptr;
    unsigned int uncaught = 0;
  };
  static ExceptionState& exceptions_of_thread();
  static void leave(void** fake_stack, const Fiber& to);
  static void arrive(void* fake_stack, Fiber* left, boost::context::fiber&& context);

  boost::context::fiber context_;
  const void* stack_bottom_ = nullptr;
  std::size_t stack_size_ = 0;
  void* fake_stack_ = nullptr;
  const char* innermost_ = nullptr;  // innermost frame at the last switch away
  ExceptionState exceptions_;
};

}  // namespace pyrdma
