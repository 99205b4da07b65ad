#include "env/faults.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/quote.h"

namespace pyrdma {
namespace {

constexpr std::array<FaultInfo, kFaults> kInfos{{
#define PYRDMA_FAULT_INFO(key, number, how, rate, min, max, meaning) \
  {#key, number, FaultDraw::how, rate, min, max, meaning},
    PYRDMA_FAULTS(PYRDMA_FAULT_INFO)
#undef PYRDMA_FAULT_INFO
}};

constexpr Time kLongest = 3600 * kSecond;
constexpr double kMostWindows = 1000;      // per virtual millisecond
constexpr double kMostSpread = 1'000'000;  // windows over all operations of a run

[[noreturn]] void refuse(const std::string& key, double value, const std::string& range) {
  throw Error(ErrorCode::kInvalidArgument,
              "fault " + key + " is " + std::to_string(value) + "; give " + range);
}

void set_value(FaultOptions& options, const std::string& key, double value) {
  if (key == "heal_at_ns") {
    if (!(value >= 0)) refuse(key, value, "0 or more, in virtual nanoseconds");
    options.heal_at = value >= 9e18 ? kForever : static_cast<Time>(value);
    return;
  }
  if (key == "first_fault" || key == "last_fault") {
    if (!(value >= 0 && value < 9e15)) refuse(key, value, "the number of a fault, from 0");
    (key == "first_fault" ? options.first_fault : options.last_fault) =
        static_cast<std::uint64_t>(value);
    return;
  }
  if (key == "coordinator") {
    if (!(value >= 0 && value < 100000)) refuse(key, value, "the number of a node");
    options.coordinator = static_cast<std::uint32_t>(value);
    return;
  }
  const std::size_t dot = key.find('.');
  const Fault fault = fault_named(std::string_view(key).substr(0, dot));
  const FaultInfo& info = fault_info(fault);
  FaultOptions::Setting& setting = options[fault];
  const std::string what = dot == std::string::npos ? "rate" : key.substr(dot + 1);
  if (what == "rate") {
    if (info.draw == FaultDraw::kMemory)
      throw Error(ErrorCode::kInvalidArgument,
                  "fault " + key + " has no rate: choose the memory model 'weak'");
    const double most = info.draw == FaultDraw::kWindow ? kMostWindows : 1;
    if (!(value >= 0 && value <= most))
      refuse(key, value,
             info.draw == FaultDraw::kWindow ? "0 to 1000 windows per virtual millisecond"
                                             : "a probability of 0 to 1");
    setting.rate = value;
  } else if (what == "windows") {
    if (info.draw != FaultDraw::kWindow)
      throw Error(ErrorCode::kInvalidArgument, "fault " + std::string(info.key) +
                                                   " has no windows: give " +
                                                   std::string(info.key) + ".rate");
    if (!(value >= 0 && value <= kMostSpread)) refuse(key, value, "0 to 1000000 windows");
    setting.windows = static_cast<std::uint32_t>(value);
    if (setting.windows > 0 && setting.rate <= 0) setting.rate = info.rate;
  } else if (what == "min_ns" || what == "max_ns") {
    if (info.max == 0)
      throw Error(ErrorCode::kInvalidArgument,
                  "fault " + std::string(info.key) +
                      " is instantaneous and has no duration: leave min_ns and max_ns out");
    if (!(value >= 1 && value <= static_cast<double>(kLongest)))
      refuse(key, value, "1 to " + std::to_string(kLongest) + " ns");
    (what == "min_ns" ? setting.min : setting.max) = static_cast<Time>(value);
  } else {
    throw Error(ErrorCode::kInvalidArgument, "fault setting " + in_quotes(key) +
                                                 " is unknown; give " + std::string(info.key) +
                                                 ".rate, .windows, .min_ns or .max_ns");
  }
}

// Counts the characters that two names share at the front and at the end.
std::size_t likeness(std::string_view a, std::string_view b) {
  const std::size_t least = std::min(a.size(), b.size());
  std::size_t front = 0, back = 0;
  while (front < least && a[front] == b[front]) ++front;
  while (back < least - front && a[a.size() - 1 - back] == b[b.size() - 1 - back]) ++back;
  return front + back;
}

}  // namespace

const FaultInfo& fault_info(Fault fault) { return kInfos[static_cast<std::size_t>(fault)]; }

Fault fault_named(std::string_view key) {
  std::size_t nearest = 0;
  for (std::size_t i = 0; i < kFaults; ++i) {
    if (kInfos[i].key == key) return static_cast<Fault>(i);
    if (likeness(kInfos[i].key, key) > likeness(kInfos[nearest].key, key)) nearest = i;
  }
  throw Error(ErrorCode::kInvalidArgument, "fault " + in_quotes(key) +
                                               " is unknown; the nearest is '" +
                                               std::string(kInfos[nearest].key) + "'");
}

FaultOptions::FaultOptions() {
  for (std::size_t i = 0; i < kFaults; ++i) settings[i] = {0, kInfos[i].min, kInfos[i].max};
}

bool FaultOptions::any() const {
  return std::any_of(settings.begin(), settings.end(),
                     [](const Setting& setting) { return setting.rate > 0; });
}

FaultOptions FaultOptions::from_values(const std::map<std::string, double>& values) {
  FaultOptions options;
  for (const auto& [key, value] : values) set_value(options, key, value);
  for (std::size_t i = 0; i < kFaults; ++i) {
    const Setting& setting = options.settings[i];
    if (setting.min > setting.max)
      throw Error(ErrorCode::kInvalidArgument, "fault " + std::string(kInfos[i].key) +
                                                   " lasts from " + std::to_string(setting.min) +
                                                   " to " + std::to_string(setting.max) +
                                                   " ns: give min_ns below max_ns");
  }
  return options;
}

FaultOptions FaultOptions::draw(std::uint64_t seed, double probability) {
  FaultOptions options;
  for (std::size_t i = 0; i < kFaults; ++i) {
    if (kInfos[i].draw == FaultDraw::kMemory) continue;
    Rng rng(seed, -1, kInfos[i].key);  // each kind has its own stream: a new kind changes no other
    if (rng.uniform() < probability)
      options.enable(static_cast<Fault>(i), std::exp2(4 * rng.uniform() - 2));
  }
  return options;
}

FaultOptions FaultOptions::swarm(std::uint64_t seed) {
  Rng rng(seed, -1, "swarm of faults");
  constexpr std::array<double, 8> kLikely{0, 0.06, 0.12, 0.12, 0.25, 0.25, 0.5, 0.5};
  FaultOptions options = draw(seed, kLikely[rng.below(kLikely.size())]);
  for (std::size_t i = 0; i < kFaults; ++i) {
    if (kInfos[i].draw != FaultDraw::kWindow || options.settings[i].rate <= 0) continue;
    Rng each(seed, -1, std::string(kInfos[i].key) + " windows");
    const std::uint64_t share = each.below(4);
    options.settings[i].windows = share < 2    ? 1
                                  : share == 2 ? 2 + static_cast<std::uint32_t>(each.below(7))
                                               : 0;
  }
  return options;
}

std::map<std::string, double> FaultOptions::values() const {
  std::map<std::string, double> values;
  for (std::size_t i = 0; i < kFaults; ++i) {
    const Setting& setting = settings[i];
    if (setting.rate <= 0) continue;
    const std::string key(kInfos[i].key);
    values[key + ".rate"] = setting.rate;
    if (setting.windows > 0) values[key + ".windows"] = setting.windows;
    if (setting.min != kInfos[i].min) values[key + ".min_ns"] = static_cast<double>(setting.min);
    if (setting.max != kInfos[i].max) values[key + ".max_ns"] = static_cast<double>(setting.max);
  }
  if (heal_at != kForever) values["heal_at_ns"] = static_cast<double>(heal_at);
  return values;
}

void FaultOptions::enable(Fault fault, double factor) {
  const FaultInfo& info = fault_info(fault);
  const double most = info.draw == FaultDraw::kWindow ? kMostWindows : 1;
  (*this)[fault].rate = std::min(most, info.rate * factor);
}

FaultStream::FaultStream(const FaultOptions& options, std::uint64_t seed, std::int64_t node,
                         FaultCounters& counters, std::uint64_t* fold)
    : options_(options), counters_(counters) {
  streams_.reserve(kFaults);
  for (std::size_t i = 0; i < kFaults; ++i) {
    streams_.emplace_back(seed, node, kInfos[i].key);
    streams_.back().fold_into(fold);
    const double rate = options.settings[i].rate;
    if (kInfos[i].draw == FaultDraw::kWindow || rate <= 0) continue;
    thresholds_[i] = rate >= 1 ? ~0ULL : static_cast<std::uint64_t>(rate * 0x1p64);
  }
}

Time FaultStream::duration(Fault fault) {
  const FaultOptions::Setting& setting = options_[fault];
  if (setting.max <= setting.min) return setting.min;
  const double ratio = static_cast<double>(setting.max) / static_cast<double>(setting.min);
  return static_cast<Time>(static_cast<double>(setting.min) *
                           std::pow(ratio, stream(fault).uniform()));
}

}  // namespace pyrdma
