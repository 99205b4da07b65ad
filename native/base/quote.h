// Texts from outside in messages.
#pragma once
#include <string>
#include <string_view>

namespace pyrdma {

/// Quotes a text for a message: on one line, control characters escaped, and shortened if long. A
/// character of UTF-8 is never cut.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 80;
  constexpr const char* kHex = "0123456789abcdef";
  std::string out = "'";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (i >= kMost && (c & 0xc0) != 0x80) return out + "'...";
    if (c < 0x20 || c == 0x7f)
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    else
      out += text[i];
  }
  return out + '\'';
}

}  // namespace pyrdma
