// The protocol that LOCO's options stand for.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace pyrdma::loco {

enum class Preset : std::uint8_t {
  kPaper,  // the steps, messages and orders of the paper; its claims are judged on these
  kBest,   // every switch on that improves on the paper's protocol
};

inline constexpr std::array<std::string_view, 2> kPresetNames{"paper", "best"};

}  // namespace pyrdma::loco
