// The protocol that LOCO's options stand for.
#pragma once
#include <cstdint>

namespace pyrdma::loco {

enum class Preset : std::uint8_t {
  kPaper,  // the steps, messages and orders of the paper; its claims are judged on these
  kBest,   // every switch on that improves on the paper's protocol
};

}  // namespace pyrdma::loco
