// The order of the two kinds of completions.
#include <gtest/gtest.h>

#include "fabric/shm/pair_test.h"

namespace pyrdma::fabric::shm {
namespace {

TEST(ShmCompletions, NeitherKindWaitsForTheOther) {
  Pair pair;
  for (std::uint64_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(pair.a.receive(pair.a.region->sge(0, 64)));
    ASSERT_TRUE(pair.b.qp->send(pair.b.region->sge(0, 8)));
  }
  int receives = 0, writes = 0;
  for (int i = 0; i < 128; ++i) {  // one more write for each poll of one
    ASSERT_TRUE(pair.a.qp->write(pair.a.region->sge(0, 8), pair.b.region->remote(), 0));
    Completion completion;
    ASSERT_EQ(pair.a.completions->poll({&completion, 1}), 1U);
    ++(completion.opcode == Opcode::kReceive ? receives : writes);
  }
  EXPECT_EQ(receives, 64);
  EXPECT_EQ(writes, 64);
}

}  // namespace
}  // namespace pyrdma::fabric::shm
