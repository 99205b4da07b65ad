// The parameters of a workload: declared in a table, checked against it once, then read without
// checks.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/units.h"

namespace pyrdma::measure {

using ParamValue = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>>;
using ParamMap = std::map<std::string, ParamValue>;

/// ParameterSpec declares one parameter of a workload. The default gives the type.
struct ParameterSpec {
  std::string name;
  ParamValue fallback;
  std::string unit;
  std::string description;
  // Bounds of a number, or of a list's elements.
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  std::vector<std::string> choices = {};  // allowed texts; empty: any
  // The value of the parameter `system` whose runs read this one; empty: all runs.
  std::string system = {};
};

/// Params holds the values of all declared parameters.
class Params {
 public:
  /// Fills defaults in. Throws Error(kInvalidArgument) for a key that `owner` does not have (naming
  /// the nearest), a value of another type, a value out of bounds (naming key, value, bound,
  /// unit), or a parameter that the chosen `system` lacks. Every workload also takes the key `run`,
  /// a number that is new for each run on a cluster.
  static Params resolve(std::span<const ParameterSpec> specs, const ParamMap& given,
                        std::string_view owner);

  std::int64_t integer(std::string_view key) const;
  std::uint32_t count(std::string_view key) const {
    return static_cast<std::uint32_t>(integer(key));
  }
  bool flag(std::string_view key) const { return integer(key) != 0; }
  double real(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const std::vector<std::int64_t>& list(std::string_view key) const;
  /// Returns the position of a text among its choices, as the enum whose values have the same
  /// order.
  template <class E>
  E choice(std::string_view key) const {
    return static_cast<E>(choice_index(key));
  }

  const std::string& owner() const { return owner_; }
  /// Prefixes a rendezvous key with this run, so that two runs on one cluster share no keys.
  std::string key(std::string_view rest) const;

 private:
  std::size_t choice_index(std::string_view key) const;
  const ParamValue& value(std::string_view key) const;

  std::string owner_;
  std::int64_t run_ = 0;
  std::map<std::string, ParamValue, std::less<>> values_;
  std::map<std::string, std::size_t, std::less<>> choices_;
};

/// Throws Error(kInvalidArgument) "<owner>: <key> <remedy>", for rules between parameters.
[[noreturn]] void throw_parameter(const Params& params, std::string_view key,
                                  std::string_view remedy);

}  // namespace pyrdma::measure
