#include "env/sim/fiber.h"

#include <gtest/gtest.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

namespace pyrdma {
namespace {

std::string caught() {
  try {
    if (const std::exception_ptr current = std::current_exception())
      std::rethrow_exception(current);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

TEST(Fiber, CarriesItsExceptionsToAnotherThread) {
  Fiber outside, fiber;
  Fiber* left = nullptr;
  std::string of_fiber;
  fiber.create(
      [&]() -> Fiber* {
        try {
          throw std::runtime_error("the fiber's");
        } catch (const std::exception&) {
          Fiber::switch_between(fiber, outside, left);
          of_fiber = caught();
        }
        return &outside;
      },
      left);
  Fiber::switch_between(outside, fiber, left);
  try {
    throw std::runtime_error("the first thread's");
  } catch (const std::exception&) {
    std::string of_second;
    std::thread([&] {
      Fiber::switch_between(outside, fiber, left);
      of_second = caught();
    }).join();
    EXPECT_EQ(of_fiber, "the fiber's");
    EXPECT_EQ(of_second, "none");
    EXPECT_EQ(caught(), "the first thread's");
  }
}

}  // namespace
}  // namespace pyrdma
