#include "fabric/sim/profile.h"

#include <array>
#include <cmath>

#include "base/error.h"

namespace pyrdma::fabric::sim {
namespace {

#define PYRDMA_INFO(table, key, unit, min, max, meaning) \
  ParameterInfo{#table "." #key, unit, min, max, meaning},
constexpr ParameterInfo kRaw[] = {PYRDMA_SIM_PARAMETERS(PYRDMA_INFO)};
#undef PYRDMA_INFO

// `switch` is a keyword in C++, so the C++ table is called `switch_`. The public names of the table
// have no underscore.
constexpr std::string_view kSwitchNames[] = {"switch.latency_ns",     "switch.buffer_bytes",
                                             "switch.alpha",          "switch.ecn_threshold_bytes",
                                             "switch.ecn_kmax_bytes", "switch.ecn_pmax",
                                             "switch.pfc_xoff_bytes"};

constexpr auto kParameters = [] {
  std::array<ParameterInfo, std::size(kRaw)> result{};
  std::size_t next_switch = 0;
  for (std::size_t i = 0; i < std::size(kRaw); ++i) {
    result[i] = kRaw[i];
    if (kRaw[i].name.substr(0, 8) == "switch_.") result[i].name = kSwitchNames[next_switch++];
  }
  return result;
}();

std::string range_text(const ParameterInfo& info) {
  auto number = [](double v) {
    std::string text = std::to_string(v);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
  };
  return number(info.min) + " to " + number(info.max) + " " + std::string(info.unit);
}

}  // namespace

std::span<const ParameterInfo> SimProfile::parameters() { return kParameters; }

SimProfile SimProfile::from_values(const std::map<std::string, double>& values) {
  SimProfile profile;
  double* const fields[] = {
#define PYRDMA_ADDRESS(table, key, unit, min, max, meaning) &profile.table##_##key,
      PYRDMA_SIM_PARAMETERS(PYRDMA_ADDRESS)
#undef PYRDMA_ADDRESS
  };
  std::size_t used = 0;
  for (std::size_t i = 0; i < kParameters.size(); ++i) {
    const ParameterInfo& info = kParameters[i];
    const auto found = values.find(std::string(info.name));
    if (found == values.end())
      throw Error(ErrorCode::kInvalidArgument,
                  "profile parameter '" + std::string(info.name) + "' is missing: give " +
                      std::string(info.meaning) + ", " + range_text(info));
    ++used;
    if (!std::isfinite(found->second) || found->second < info.min || found->second > info.max)
      throw Error(ErrorCode::kInvalidArgument, "profile parameter '" + std::string(info.name) +
                                                   "' is " + std::to_string(found->second) +
                                                   "; the allowed range is " + range_text(info));
    *fields[i] = found->second;
  }
  if (used != values.size())
    for (const auto& [name, value] : values) {
      bool known = false;
      for (const ParameterInfo& info : kParameters) known = known || info.name == name;
      if (!known)
        throw Error(ErrorCode::kInvalidArgument, "profile parameter '" + name + "' is unknown");
    }
  if (profile.pcie_read_ns < profile.pcie_write_ns)
    throw Error(
        ErrorCode::kInvalidArgument,
        "profile parameter 'pcie.read_ns' is a round trip and must not be below 'pcie.write_ns'");
  const double kmin = profile.switch__ecn_threshold_bytes, kmax = profile.switch__ecn_kmax_bytes;
  if (kmax != 0 && kmax < kmin)
    throw Error(ErrorCode::kInvalidArgument,
                "profile parameter 'switch.ecn_kmax_bytes' is " + std::to_string(kmax) +
                    "; give 0, or at least 'switch.ecn_threshold_bytes', " + std::to_string(kmin));
  return profile;
}

}  // namespace pyrdma::fabric::sim
