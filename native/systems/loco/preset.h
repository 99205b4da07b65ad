// Which protocol LOCO's options stand for.
#pragma once
#include <cstdint>

namespace pyrdma::loco {

enum class Preset : std::uint8_t {
  kPaper,  // the steps, messages and orders of the paper; its claims are judged on these
  kBest,   // with every switch on that makes the protocol better than the paper's
};

}  // namespace pyrdma::loco
