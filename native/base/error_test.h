// Errors are compared by code and by the values that they name, never by their sentences.
#pragma once
#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace pyrdma {

/// Whether a text names each value as a whole word: "1" is in "1.0", not in "-1" or "12".
inline testing::AssertionResult names(std::string_view text,
                                      const std::vector<std::string_view>& values) {
  const auto is = [text](std::size_t at, auto property) {  // false outside of the text
    return at < text.size() && property(static_cast<unsigned char>(text[at]));
  };
  const auto is_word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto is_sign = [](unsigned char c) { return c == '-'; };
  const auto is_zero = [](unsigned char c) { return c == '0'; };
  const auto is_point = [](unsigned char c) { return c == '.'; };
  for (const std::string_view value : values) {
    const bool number = is_digit(static_cast<unsigned char>(value.front()));
    const bool ends_as_word = is_word(static_cast<unsigned char>(value.back()));
    bool found = false;
    for (auto at = text.find(value); at != text.npos && !found; at = text.find(value, at + 1)) {
      const std::size_t end = at + value.size();
      const bool continues = is(at - 1, is_word) || (number && is(at - 1, is_point)) ||
                             (number && is(at - 1, is_sign) && !is(at - 2, is_word));
      std::size_t fraction = end + 1;
      while (is(fraction, is_zero)) ++fraction;
      const bool goes_on = is(end, is_word) || (is(end, is_point) && is(fraction, is_digit));
      found = !continues && !(ends_as_word && goes_on);
    }
    if (!found) return testing::AssertionFailure() << '"' << text << "\" does not name " << value;
  }
  return testing::AssertionSuccess();
}

/// Whether `act` throws an Error of this code that names the values.
template <typename Act>
testing::AssertionResult refuses(Act&& act, ErrorCode code,
                                 const std::vector<std::string_view>& values = {}) {
  try {
    act();
  } catch (const Error& error) {
    if (error.code() != code)
      return testing::AssertionFailure()
             << "code " << static_cast<int>(error.code()) << " instead of "
             << static_cast<int>(code) << ": " << error.what();
    return names(error.what(), values);
  }
  return testing::AssertionFailure() << "no Error";
}

/// Returns the nodes that the Error of `act` blames; none without an Error.
template <typename Act>
std::vector<std::uint32_t> blamed_by(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.nodes();
  }
  return {};
}

/// Returns the message of the Error that `act` throws; empty if it throws none.
template <typename Act>
std::string error_of(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace pyrdma
