#include "systems/krcore/vqp/completion_rows.h"

#include <gtest/gtest.h>

namespace pyrdma::krcore {
namespace {

using fabric::Opcode;
using fabric::Status;

/// Rows of requests, with a signal or without.
CompletionRows rows_of(std::initializer_list<bool> signaled) {
  CompletionRows rows;
  std::uint64_t wr_id = 0;
  for (const bool each : signaled)
    rows.push_back({++wr_id, 0, Opcode::kWrite, Status::kSuccess, each, false});
  return rows;
}

// A long message, the second one, has been read before the completion of the first one is taken.
// That fails then.
TEST(KrcoreCompletionRows, NothingSucceedsBehindAFailure) {
  CompletionRows rows = rows_of({true, true, false, true});
  rows.end(1, Status::kSuccess);
  rows.end(2, Status::kSuccess);
  rows.end(0, Status::kRetryExceeded);
  rows.end(3, Status::kSuccess);
  EXPECT_TRUE(rows.has_failed());
  for (std::uint64_t row = 0; row < 4; ++row) {
    EXPECT_TRUE(rows[row].is_ready);
    EXPECT_EQ(rows[row].status, row == 0 ? Status::kRetryExceeded : Status::kFlushed) << row;
    EXPECT_FALSE(rows[row].is_silent()) << row;
  }
}

TEST(KrcoreCompletionRows, WhatIsBeforeAFailureSucceeds) {
  CompletionRows rows = rows_of({true, true, true});
  rows.end(2, Status::kFlushed);
  rows.end(0, Status::kSuccess);
  rows.end(1, Status::kRemoteAccess);
  EXPECT_EQ(rows[0].status, Status::kSuccess);
  EXPECT_EQ(rows[1].status, Status::kRemoteAccess);
  EXPECT_EQ(rows[2].status, Status::kFlushed);
  rows.clear();
  EXPECT_FALSE(rows.has_failed());
  rows.push_back({1, 0, Opcode::kWrite, Status::kSuccess, true, false});
  rows.end(rows.begin(), Status::kSuccess);
  EXPECT_EQ(rows.front().status, Status::kSuccess) << "of the next connection";
}

// A long message waits when a request behind it is refused, and is flushed. Its answer comes before
// its owner takes the completion: it must not succeed after the second one has been flushed for it.
TEST(KrcoreCompletionRows, ARowEndsOnce) {
  CompletionRows rows = rows_of({true, true, true});
  rows.end(1, Status::kSuccess);
  rows.end(2, Status::kRemoteAccess);
  rows.end(0, Status::kFlushed);
  rows.end(0, Status::kSuccess);
  EXPECT_EQ(rows[0].status, Status::kFlushed);
  EXPECT_EQ(rows[1].status, Status::kFlushed);
  EXPECT_EQ(rows[2].status, Status::kRemoteAccess);
}

}  // namespace
}  // namespace pyrdma::krcore
