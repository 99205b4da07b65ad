// What tests of a group share.
#pragma once
#include "systems/erpc/fuzz/raft/world.h"

#define PYRDMA_NEED_LIBRAFT() \
  if (!raft_problem().empty()) GTEST_SKIP() << raft_problem()
