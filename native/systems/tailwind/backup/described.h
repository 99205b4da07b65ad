// How a backup names a segment in its problems. Any thread may call it.
#pragma once
#include <cstdint>
#include <string>

#include "systems/tailwind/server_id.h"

namespace pyrdma::tailwind {

inline std::string described(std::uint64_t log, std::uint64_t segment) {
  return "segment " + std::to_string(segment) + " of the log of " + to_string(ServerId::of(log));
}

}  // namespace pyrdma::tailwind
