#include "base/quote.h"

#include <algorithm>

namespace pyrdma {
namespace {

constexpr std::size_t kQuotedBytes = 80;

/// Takes the first character of valid UTF-8 from `text`.
char32_t take_character(std::string_view& text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  char32_t code = length == 1 ? first : first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3fU);
  text.remove_prefix(std::min(length, text.size()));
  return code;
}

/// Control characters, and characters without a form of their own that change the order or the
/// breaks of the text around them.
bool steers(char32_t c) {
  const auto within = [c](char32_t from, char32_t to) { return c >= from && c <= to; };
  return c < 0x20 || within(0x7f, 0x9f) || c == 0xad || c == 0x61c || c == 0x180e ||
         within(0x200b, 0x200f) || within(0x2028, 0x202e) || within(0x2060, 0x206f) ||
         c == 0xfeff || within(0xfff9, 0xfffb) || within(0xe0000, 0xe007f);
}

void append_safe(std::string& out, std::string_view text) {
  constexpr const char* kHex = "0123456789abcdef";
  while (!text.empty()) {
    const std::string_view before = text;
    const char32_t c = take_character(text);
    if (!steers(c)) {
      out += before.substr(0, before.size() - text.size());
      continue;
    }
    const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
    for (int digit = digits - 1; digit >= 0; --digit) out += kHex[c >> (4 * digit) & 15];
  }
}

}  // namespace

std::string in_quotes(std::string_view text, char quote) {
  const auto begins = [&](std::size_t at) {  // a character begins here
    return at == 0 || at == text.size() || (static_cast<unsigned char>(text[at]) & 0xc0U) != 0x80U;
  };
  std::string out(1, quote);
  if (text.size() <= kQuotedBytes) {
    append_safe(out, text);
    return out + quote;
  }
  std::size_t head = kQuotedBytes / 2, tail = text.size() - kQuotedBytes / 2;
  while (!begins(head)) --head;
  while (!begins(tail)) ++tail;
  append_safe(out, text.substr(0, head));
  out += quote;
  out += " ... ";
  out += quote;
  append_safe(out, text.substr(tail));
  return out + quote + " (" + std::to_string(text.size()) + " bytes)";
}

}  // namespace pyrdma
