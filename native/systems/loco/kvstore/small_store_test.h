// The options of a small store, whose clients contend for few locks.
#pragma once
#include "systems/loco/kvstore/store.h"

namespace pyrdma::loco {

inline KvOptions small_store(std::uint32_t value_bytes) {
  KvOptions options;
  options.keys = 64;
  options.value_bytes = value_bytes;
  options.locks = 3;
  options.tracker_bytes = 1024;
  return options;
}

}  // namespace pyrdma::loco
