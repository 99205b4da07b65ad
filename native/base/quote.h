// Texts from outside in messages.
#pragma once
#include <string>
#include <string_view>

namespace pyrdma {

/// Quotes a text for people: on one line, with escape sequences for characters that steer a
/// terminal or the order of a text, and cut in its middle when it has more than 80 bytes. No
/// character of UTF-8 is cut.
std::string in_quotes(std::string_view text, char quote = '\'');

}  // namespace pyrdma
