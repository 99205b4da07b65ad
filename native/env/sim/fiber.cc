#include "env/sim/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/stack_context.hpp>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define PYRDMA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PYRDMA_ASAN 1
#endif
#endif
#ifdef PYRDMA_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace __cxxabiv1 {
struct __cxa_eh_globals;
extern "C" __cxa_eh_globals* __cxa_get_globals() noexcept;
}  // namespace __cxxabiv1

namespace pyrdma {

namespace {

/// A mapping with an inaccessible page below it. Boost's own allocator is not usable: the static
/// library that Debian ships accesses libstdc++'s thread-local storage in a way that fails after a
/// Python process has loaded libstdc++ with another module (pyarrow).
struct GuardedStack {
  boost::context::stack_context allocate() const {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    boost::context::stack_context stack;
    stack.size = Fiber::kStackBytes + page;
    void* bottom =
        mmap(nullptr, stack.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bottom == MAP_FAILED) throw std::bad_alloc();
    mprotect(bottom, page, PROT_NONE);
    stack.sp = static_cast<char*>(bottom) + stack.size;
    return stack;
  }
  void deallocate(boost::context::stack_context& stack) const {
    char* bottom = static_cast<char*>(stack.sp) - stack.size;
#ifdef PYRDMA_ASAN
    // Frames that never returned leave marks on their memory, which the next mapping there would
    // inherit.
    __asan_unpoison_memory_region(bottom, stack.size);
#endif
    munmap(bottom, stack.size);
  }
};

}  // namespace

void Fiber::leave([[maybe_unused]] void** fake_stack, [[maybe_unused]] const Fiber& to) {
#ifdef PYRDMA_ASAN
  __sanitizer_start_switch_fiber(fake_stack, to.stack_bottom_, to.stack_size_);
#endif
}

void Fiber::arrive([[maybe_unused]] void* fake_stack, Fiber* left,
                   boost::context::fiber&& context) {
#ifdef PYRDMA_ASAN
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
  if (left != nullptr) {
    left->stack_bottom_ = bottom;
    left->stack_size_ = size;
  }
#endif
  if (left != nullptr) left->context_ = std::move(context);
}

void Fiber::create(std::function<Fiber*()> entry, Fiber*& left) {
  const GuardedStack allocator;
  const boost::context::stack_context stack = allocator.allocate();
  stack_bottom_ = static_cast<const char*>(stack.sp) - stack.size;
  stack_size_ = stack.size;
  // Boost enters the new stack for a moment here. A frame must not come from the fake stack of the
  // creator, which may end earlier.
  void* fake_stack = nullptr;
  leave(&fake_stack, *this);
  context_ = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack), allocator,
      [entry = std::move(entry), &left](boost::context::fiber&& from) {
        arrive(nullptr, left, std::move(from));
        Fiber* next = entry();
        left = nullptr;
        leave(nullptr, *next);
        return std::move(next->context_);
      });
  Fiber creator;
  arrive(fake_stack, &creator, {});
  leave(&fake_stack, creator);
  arrive(fake_stack, nullptr, {});
}

// The OS thread may differ after a switch. __cxa_get_globals() is declared to be constant, so the
// compiler would call it once for both sides; the empty assembly keeps it from seeing that here.
[[gnu::noinline]] Fiber::ExceptionState& Fiber::exceptions_of_thread() {
  asm volatile("" ::: "memory");
  return *reinterpret_cast<ExceptionState*>(__cxxabiv1::__cxa_get_globals());
}

void Fiber::switch_between(Fiber& from, Fiber& to, Fiber*& left) {
  // An exception in flight belongs to its stack, but the runtime keeps it per OS thread.
  from.exceptions_ = std::exchange(exceptions_of_thread(), to.exceptions_);
  left = &from;
  from.innermost_ = static_cast<const char*>(__builtin_frame_address(0));
  leave(&from.fake_stack_, to);
  boost::context::fiber context = std::move(to.context_).resume();
  arrive(from.fake_stack_, left, std::move(context));
  exceptions_of_thread() = from.exceptions_;
}

}  // namespace pyrdma
