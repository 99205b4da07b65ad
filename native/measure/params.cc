#include "measure/params.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/assert.h"
#include "base/error.h"
#include "base/quote.h"
#include "measure/workload.h"

namespace pyrdma::measure {

namespace {

constexpr const char* kKinds[] = {"a whole number", "a number", "text", "a list of whole numbers"};

std::string shown(double value) {
  std::ostringstream out;
  out.precision(17);
  out << value;
  return out.str();
}

std::string shown(const ParamValue& value) {
  struct {
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return shown(v); }
    std::string operator()(const std::string& v) const { return in_quotes(v); }
    std::string operator()(const std::vector<std::int64_t>& v) const {
      std::string text = "[";
      for (const std::int64_t item : v)
        text += (text.size() > 1 ? ", " : "") + std::to_string(item);
      return text + ']';
    }
  } show;
  return std::visit(show, value);
}

std::string shown_of(const ParameterSpec& spec, const ParamValue& value) {
  const auto* whole = std::get_if<std::int64_t>(&value);
  if (spec.unit != "bool" || whole == nullptr) return shown(value);
  return *whole != 0 ? "True" : "False";
}

[[noreturn]] void complain(std::string_view owner, std::string_view key, const std::string& value,
                           const std::string& remedy) {
  throw Error(ErrorCode::kInvalidArgument,
              std::string(owner) + ": " + std::string(key) + " is " + value + "; " + remedy);
}

std::string bounds_of(const ParameterSpec& spec) {
  const bool low = spec.min > std::numeric_limits<double>::lowest();
  const bool high = spec.max < std::numeric_limits<double>::max();
  const std::string unit = spec.unit.empty() ? "" : ' ' + spec.unit;
  if (low && high) return "give " + shown(spec.min) + " to " + shown(spec.max) + unit;
  if (low) return "give at least " + shown(spec.min) + unit;
  return "give at most " + shown(spec.max) + unit;
}

void check_number(std::string_view owner, const ParameterSpec& spec, double value) {
  if (std::isfinite(value) && value >= spec.min && value <= spec.max) return;
  complain(owner, spec.name, shown(value), bounds_of(spec));
}

// A whole number converts to a real one; no other type converts.
ParamValue convert(std::string_view owner, const ParameterSpec& spec, const ParamValue& given) {
  if (given.index() == spec.fallback.index()) return given;
  const auto* whole = std::get_if<std::int64_t>(&given);
  if (whole != nullptr && std::holds_alternative<double>(spec.fallback))
    return static_cast<double>(*whole);
  complain(owner, spec.name, shown(given), std::string("give ") + kKinds[spec.fallback.index()]);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void check(std::string_view owner, const ParameterSpec& spec, const ParamValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    check_number(owner, spec, static_cast<double>(*whole));
  } else if (const auto* real = std::get_if<double>(&value)) {
    check_number(owner, spec, *real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    const bool known =
        std::find(spec.choices.begin(), spec.choices.end(), *text) != spec.choices.end();
    if (!spec.choices.empty() && !known) {
      complain(owner, spec.name, shown(value),
               "give one of " + listed(spec.choices) + suggest(*text, spec.choices));
    }
  } else {
    for (const std::int64_t item : std::get<std::vector<std::int64_t>>(value)) {
      check_number(owner, spec, static_cast<double>(item));
    }
  }
}

}  // namespace

Params Params::resolve(std::span<const ParameterSpec> specs, const ParamMap& given,
                       std::string_view owner) {
  static const ParameterSpec kRun{"run", std::int64_t{0}, "", "number of the run on its cluster",
                                  0};
  Params params;
  params.owner_ = owner;
  std::vector<std::string> names;
  for (const ParameterSpec& spec : specs) names.push_back(spec.name);
  for (const auto& [key, value] : given) {
    if (key == kRun.name) {
      check(owner, kRun, convert(owner, kRun, value));
      params.run_ = std::get<std::int64_t>(value);
    } else if (std::find(names.begin(), names.end(), key) == names.end()) {
      throw Error(ErrorCode::kInvalidArgument, std::string(owner) + " has no parameter " +
                                                   in_quotes(key) + "; it takes " + listed(names) +
                                                   suggest(key, names));
    }
  }
  for (const ParameterSpec& spec : specs) {
    const auto found = given.find(spec.name);
    const ParamValue value =
        found == given.end() ? spec.fallback : convert(owner, spec, found->second);
    check(owner, spec, value);
    if (!spec.choices.empty()) {
      const auto position =
          std::find(spec.choices.begin(), spec.choices.end(), std::get<std::string>(value));
      params.choices_[spec.name] = static_cast<std::size_t>(position - spec.choices.begin());
    }
    params.values_[spec.name] = value;
  }
  for (const ParameterSpec& spec : specs) {
    const auto found = given.find(spec.name);
    if (spec.system.empty() || found == given.end()) continue;
    if (const std::string& system = params.text("system"); system != spec.system)
      complain(owner, spec.name, shown_of(spec, found->second),
               "only the system " + spec.system + " has it; leave it out with " + system);
  }
  return params;
}

const ParamValue& Params::value(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    throw Error(ErrorCode::kInternal, owner_ + " reads the parameter '" + std::string(key) +
                                          "', which its table does not declare");
  }
  return found->second;
}

std::int64_t Params::integer(std::string_view key) const {
  return std::get<std::int64_t>(value(key));
}
double Params::real(std::string_view key) const { return std::get<double>(value(key)); }
const std::string& Params::text(std::string_view key) const {
  return std::get<std::string>(value(key));
}
const std::vector<std::int64_t>& Params::list(std::string_view key) const {
  return std::get<std::vector<std::int64_t>>(value(key));
}

std::size_t Params::choice_index(std::string_view key) const {
  const auto found = choices_.find(key);
  PYRDMA_ASSERT(found != choices_.end());
  return found->second;
}

std::string Params::key(std::string_view rest) const {
  return 'w' + std::to_string(run_) + '/' + std::string(rest);
}

void throw_parameter(const Params& params, std::string_view key, std::string_view remedy) {
  const auto found = params.owner().empty() ? std::string("workload") : params.owner();
  throw Error(ErrorCode::kInvalidArgument,
              found + ": " + std::string(key) + ' ' + std::string(remedy));
}

}  // namespace pyrdma::measure
