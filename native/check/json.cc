#include "check/json.h"

#include <charconv>

namespace pyrdma::check {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string shown(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0x20 && byte < 0x7f) return std::string("'") + c + '\'';
  constexpr const char* kHex = "0123456789abcdef";
  return std::string("byte 0x") + kHex[byte >> 4] + kHex[byte & 15];
}

void append_utf8(std::string& out, unsigned code) {
  const auto push = [&](unsigned byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xc0 | (code >> 6));
    push(0x80 | (code & 63));
  } else if (code < 0x10000) {
    push(0xe0 | (code >> 12));
    push(0x80 | ((code >> 6) & 63));
    push(0x80 | (code & 63));
  } else {
    push(0xf0 | (code >> 18));
    push(0x80 | ((code >> 12) & 63));
    push(0x80 | ((code >> 6) & 63));
    push(0x80 | (code & 63));
  }
}

}  // namespace

void JsonLine::fail_at(std::size_t column, const std::string& message) {
  throw JsonError{column, message};
}
void JsonLine::fail(const std::string& message) const { fail_at(column(), message); }

void JsonLine::skip_spaces() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r'))
    ++at_;
}

char JsonLine::peek() {
  skip_spaces();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonLine::take(char c) {
  if (peek() != c || at_ == text_.size()) return false;
  ++at_;
  return true;
}

void JsonLine::expect(char c, const char* where) {
  if (take(c)) return;
  const std::string found = at_ < text_.size() ? shown(text_[at_]) : "the end of the line";
  fail(std::string("expected '") + c + "' " + where + ", found " + found);
}

void JsonLine::end() {
  skip_spaces();
  if (at_ != text_.size())
    fail("expected the end of the line after the object, found " + shown(text_[at_]));
}

std::string JsonLine::text() {
  expect('"', "before a text");
  std::string out;
  for (;;) {
    if (at_ >= text_.size()) fail("the closing '\"' of a text is missing");
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      return out;
    }
    if (static_cast<unsigned char>(c) < 0x20)
      fail("a text holds " + shown(c) + "; write it as an escape sequence");
    if (c == '\\') {
      ++at_;
      escape(out);
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      utf8(out);
    } else {
      out += c;
      ++at_;
    }
  }
}

void JsonLine::utf8(std::string& out) {
  const auto byte = [&](std::size_t i) {
    return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0U;
  };
  const unsigned first = byte(0);
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  unsigned code = first & (0xffU >> (length + 1));
  bool good = first >= 0xc2 && first <= 0xf4;
  for (std::size_t i = 1; i < length; ++i) {
    good = good && (byte(i) & 0xc0U) == 0x80U;
    code = (code << 6) | (byte(i) & 0x3fU);
  }
  // The checks refuse overlong forms, halves of surrogate pairs and codes beyond Unicode.
  if (length == 3) good = good && code >= 0x800 && (code < 0xd800 || code > 0xdfff);
  if (length == 4) good = good && code >= 0x10000 && code <= 0x10ffff;
  if (!good) fail("a text is not valid UTF-8 at " + shown(text_[at_]));
  out.append(text_.substr(at_, length));
  at_ += length;
}

unsigned JsonLine::hex4() {
  if (at_ + 4 > text_.size()) fail("\\u needs four hexadecimal digits");
  unsigned code = 0;
  const char* begin = text_.data() + at_;
  const auto [last, error] = std::from_chars(begin, begin + 4, code, 16);
  if (error != std::errc() || last != begin + 4) fail("\\u needs four hexadecimal digits");
  at_ += 4;
  return code;
}

void JsonLine::escape(std::string& out) {
  if (at_ >= text_.size()) fail("the text ends within an escape sequence");
  const char c = text_[at_];
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  if (const std::size_t found = kNames.find(c); found != std::string_view::npos) {
    out += kValues[found];
    ++at_;
    return;
  }
  if (c != 'u')
    fail("unknown escape sequence " + shown(c) +
         "; JSON has \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
  ++at_;
  unsigned code = hex4();
  if (code >= 0xd800 && code <= 0xdbff && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const unsigned low = hex4();
    if (low < 0xdc00 || low > 0xdfff) fail("the two \\u escapes of a surrogate pair do not match");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xd800 && code <= 0xdfff) {
    fail("a \\u escape holds one half of a surrogate pair; give both halves");
  }
  append_utf8(out, code);
}

/// Takes the characters of a number. It takes a fraction or exponent too, for a good message.
std::string_view JsonLine::number(const char* what) {
  skip_spaces();
  const std::size_t begin = at_;
  if (at_ < text_.size() && text_[at_] == '-') ++at_;
  const std::size_t digits = at_;
  while (at_ < text_.size() &&
         (is_digit(text_[at_]) || text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E' ||
          (at_ > digits && (text_[at_] == '+' || text_[at_] == '-'))))
    ++at_;
  const std::string_view found = text_.substr(begin, at_ - begin);
  if (at_ == digits || !is_digit(text_[digits])) {
    const std::string there = begin < text_.size() ? shown(text_[begin]) : "the end of the line";
    fail_at(begin + 1, std::string(what) + " must be a whole number, found " + there);
  }
  if (text_[digits] == '0' && at_ > digits + 1 && is_digit(text_[digits + 1]))
    fail_at(begin + 1, std::string(what) + " is " + std::string(found) +
                           ": a number must not have leading zeros");
  return found;
}

std::int64_t JsonLine::integer(const char* what, std::int64_t least, std::int64_t most) {
  skip_spaces();
  const std::size_t begin = column();
  const std::string_view digits = number(what);
  std::int64_t value = 0;
  const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || last != digits.data() + digits.size())
    fail_at(begin, std::string(what) + " is " + std::string(digits.substr(0, 40)) +
                       "; it must be a whole number of 64 bits");
  if (value < least || value > most)
    fail_at(begin, std::string(what) + " is " + std::string(digits) + "; it must be " +
                       std::to_string(least) + " to " + std::to_string(most));
  return value;
}

std::uint64_t JsonLine::unsigned_integer(const char* what) {
  skip_spaces();
  const std::size_t begin = column();
  const std::string_view digits = number(what);
  std::uint64_t value = 0;
  const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || last != digits.data() + digits.size())
    fail_at(begin, std::string(what) + " is " + std::string(digits.substr(0, 40)) +
                       "; it must be a whole number from 0 to 2^64-1");
  return value;
}

void JsonLine::word(std::string_view word) {
  skip_spaces();
  if (text_.substr(at_, word.size()) != word) fail("expected " + std::string(word));
  at_ += word.size();
}

bool JsonLine::boolean() {
  const bool yes = peek() == 't';
  word(yes ? "true" : "false");
  return yes;
}

void JsonLine::null() { word("null"); }

void JsonLine::skip_value() {
  std::string open;  // brackets still to close
  do {
    const char c = peek();
    if (c == '{' || c == '[') {
      if (open.size() == kDepth)
        fail("values are nested more than " + std::to_string(kDepth) + " deep");
      ++at_;
      const char close = c == '{' ? '}' : ']';
      if (!take(close)) {
        open += close;
        if (c == '{') {
          text();
          expect(':', "after a name");
        }
        continue;
      }
    } else if (c == '"') {
      text();
    } else if (c == 't' || c == 'f') {
      boolean();
    } else if (c == 'n') {
      null();
    } else {
      number("a value");
    }
    // After a value, the brackets that end here close, or the next element follows.
    while (!open.empty() && take(open.back())) open.pop_back();
    if (!open.empty()) {
      expect(',', "between elements");
      if (open.back() == '}') {
        text();
        expect(':', "after a name");
      }
    }
  } while (!open.empty());
}

void append_json(std::string& out, std::string_view text) {
  constexpr const char* kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace pyrdma::check
