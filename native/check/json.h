// JsonLine reads one line of JSON, strictly, and without recursion that the input could deepen. A
// history needs flat objects of whole numbers, texts and short lists, a bound for each, and errors
// that name the column. This is less code than the glue to a library, and needs no further package.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pyrdma::check {

/// The reader of the file catches it and adds the line.
struct JsonError {
  std::size_t column;  // from 1
  std::string message;
};

class JsonLine {
 public:
  explicit JsonLine(std::string_view text) : text_(text) {}

  /// Returns the first character of the next value: { [ " t f n - 0..9, or '\0' at the end.
  char peek();
  void expect(char c, const char* where);
  /// Takes `c` if it comes next, and returns whether it did.
  bool take(char c);
  void end();  // only spaces may follow

  std::string text();
  std::int64_t integer(const char* what, std::int64_t least, std::int64_t most);
  std::uint64_t unsigned_integer(const char* what);
  bool boolean();
  void null();
  void skip_value();  // skips a value of any kind, at most kDepth deep

  [[noreturn]] void fail(const std::string& message) const;
  std::size_t column() const { return at_ + 1; }
  [[noreturn]] static void fail_at(std::size_t column, const std::string& message);

  static constexpr int kDepth = 32;

 private:
  void skip_spaces();
  std::string_view number(const char* what);
  void word(std::string_view word);
  void escape(std::string& out);
  unsigned hex4();
  void utf8(std::string& out);  // copies one sequence of several bytes

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Appends the text, quoted and escaped.
void append_json(std::string& out, std::string_view text);

}  // namespace pyrdma::check
