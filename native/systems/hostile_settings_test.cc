// The test passes any keys and values as parameters of a workload, as faults and as a profile. The
// code accepts them, or refuses them by an error that names a key; accepted values lie within their
// bounds.
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/hostile_test.h"
#include "env/faults.h"
#include "fabric/sim/profile.h"
#include "measure/params.h"
#include "measure/workload.h"
#include "systems/system.h"

namespace pyrdma::systems {
namespace {

using measure::ParameterSpec;
using measure::ParamMap;
using measure::Params;
using measure::ParamValue;

// One byte selects a known key (or the key's own text follows); then comes the value.
std::vector<std::string> good_settings() {
  std::vector<std::string> seeds{std::string("\0", 1)};
  for (char known = 0; known < 24; ++known) {
    std::string seed;
    seed += known;
    for (char key = 0; key < 6; ++key) {
      seed += key;
      seed += '\x01';
      seed += std::string("\x10\0\0\0\0\0\0\0", 8);
    }
    seeds.push_back(seed);
  }
  return seeds;
}

std::string key_of(hostile::Reader& reader, const std::vector<std::string>& known) {
  const std::uint64_t choice = reader.number(1);
  if (choice < 250 && !known.empty()) return known[choice % known.size()];
  return std::string(reader.text(40));
}

double real_of(hostile::Reader& reader) {
  switch (reader.number(1) % 4) {
    case 0:
      return std::bit_cast<double>(reader.number(8));
    case 1:
      return static_cast<double>(static_cast<std::int64_t>(reader.number(8)));
    case 2:
      return std::nan("");
    default:
      return static_cast<double>(reader.number(2)) / 65536;
  }
}

void resolve(hostile::Reader& reader, const std::string& name) {
  const auto workload = workloads().make(name);
  std::vector<std::string> known{"run"};
  for (const ParameterSpec& spec : workload->parameters()) known.push_back(spec.name);
  ParamMap given;
  while (!reader.done()) {
    ParamValue& value = given[key_of(reader, known)];
    switch (reader.number(1) % 4) {
      case 0:
        value = real_of(reader);
        break;
      case 1:
        value = static_cast<std::int64_t>(reader.number(8));
        break;
      case 2:
        value = std::string(reader.text(20));
        break;
      default:
        value = std::vector<std::int64_t>(reader.number(1),
                                          static_cast<std::int64_t>(reader.number(8)));
    }
  }
  const Params params = Params::resolve(workload->parameters(), given, name);
  for (const ParameterSpec& spec : workload->parameters()) {
    if (!std::holds_alternative<std::int64_t>(spec.fallback)) continue;
    const auto value = static_cast<double>(params.integer(spec.name));
    PYRDMA_MUST(value >= spec.min && value <= spec.max);
  }
}

std::map<std::string, double> numbers(hostile::Reader& reader,
                                      const std::vector<std::string>& known) {
  std::map<std::string, double> values;
  while (!reader.done()) {
    const std::string key = key_of(reader, known);
    values[key] = real_of(reader);
  }
  return values;
}

void settle(std::string_view input) {
  hostile::Reader reader(input);
  const std::vector<std::string> names = workloads().names();
  const std::uint64_t choice = reader.number(1) % (names.size() + 3);
  try {
    if (choice < names.size()) {
      resolve(reader, names[choice]);
    } else if (choice == names.size()) {
      std::vector<std::string> known{"heal_at_ns", "coordinator"};
      for (std::size_t i = 0; i < kFaults; ++i) {
        const std::string key(fault_info(static_cast<Fault>(i)).key);
        for (const char* field : {".rate", ".min_ns", ".max_ns"}) known.push_back(key + field);
      }
      const FaultOptions options = FaultOptions::from_values(numbers(reader, known));
      for (const FaultOptions::Setting& setting : options.settings) {
        PYRDMA_MUST(setting.rate >= 0 && setting.min <= setting.max);
      }
    } else if (choice == names.size() + 1) {
      using fabric::sim::SimProfile;
      std::vector<std::string> known;
      std::map<std::string, double> values;
      for (const fabric::sim::ParameterInfo& info : SimProfile::parameters()) {
        known.emplace_back(info.name);
        values[known.back()] = info.max;
      }
      for (const auto& [key, value] : numbers(reader, known)) values[key] = value;
      SimProfile::from_values(values);
      for (const fabric::sim::ParameterInfo& info : SimProfile::parameters()) {
        const double value = values.at(std::string(info.name));
        PYRDMA_MUST(value >= info.min && value <= info.max);
      }
    } else {
      const std::string name(reader.text(40));
      if (name.find(".so:") == std::string::npos) workloads().make(name);
    }
  } catch (const Error& error) {
    PYRDMA_MUST(error.code() == ErrorCode::kInvalidArgument);
    PYRDMA_MUST(std::string_view(error.what()).size() < 16384);
  }
}

PYRDMA_HOSTILE(Settings, good_settings(), settle)

}  // namespace
}  // namespace pyrdma::systems
