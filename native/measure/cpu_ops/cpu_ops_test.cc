#include "measure/cpu_ops/cpu_ops.h"

#include <gtest/gtest.h>

#include "base/error_test.h"
#include "env/thread/thread_env.h"
#include "measure/cpu_ops/code.h"

namespace pyrdma::measure {
namespace {

constexpr Time kShort = 2 * kMillisecond;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)  // Clang
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

TEST(CpuOps, MoreWorkTakesMoreTime) {
  const double add = cpu_operation_ns("add", 0, kShort);
  EXPECT_GT(add, 0.02);
  EXPECT_LT(add, 50);
  EXPECT_GT(cpu_operation_ns("code", 0, kShort), 5 * add);
  EXPECT_GT(cpu_operation_ns("system_call", 0, kShort), 5 * add);
  // A second-level cache is a quarter of this at most, a first-level cache is larger than 8 KiB.
  EXPECT_GT(cpu_operation_ns("line", 64 << 20, kShort), cpu_operation_ns("line", 8192, kShort));
}

TEST(CpuOps, EveryKindEnds) {
  for (const char* kind : {"atomic", "clock", "context_switch", "process_start"})
    EXPECT_GT(cpu_operation_ns(kind, 0, kShort), 0) << kind;
  if (usable_cores().size() < 2) GTEST_SKIP() << "two cores are needed";
  EXPECT_GT(cpu_operation_ns("core_line", 0, kShort), 0);
  EXPECT_GT(cpu_operation_ns("line_loaded", 4 << 20, kShort), 0);
}

TEST(CpuOps, AWrongKindOrSizeIsNamed) {
  EXPECT_TRUE(refuses([] { cpu_operation_ns("subtract", 0, kShort); }, ErrorCode::kInvalidArgument,
                      {"subtract"}));
  EXPECT_TRUE(refuses([] { cpu_operation_ns("line", 64, kShort); }, ErrorCode::kInvalidArgument,
                      {"64", "4096"}));
}

// The tracer counts every instruction once, so equal programs have equal counts.
TEST(CpuOps, InstructionsAreCounted) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own instructions count too";
  const double count = code_instructions();
  EXPECT_GT(count, 30);
  EXPECT_LT(count, 300);
  EXPECT_EQ(count, code_instructions());
}

// The measured code does what its comment says: its result depends on every request.
TEST(CpuOps, TheCodeHandlesItsRequests) {
  RequestCode code, again;
  code.run(1000);
  again.run(999);
  EXPECT_NE(code.result(), 0U);
  EXPECT_NE(code.result(), again.result());
}

}  // namespace
}  // namespace pyrdma::measure
