// Any bytes as a history: the reader refuses them and names the line, or reads them. A history that
// was read is written and read again without change.
#include "base/hostile_test.h"
#include "check/history_json.h"

namespace pyrdma::check {
namespace {

std::vector<std::string> good_files() {
  return {
      "{\"seed\":1,\"model\":\"register\"}\n"
      "{\"index\":0,\"time\":1,\"process\":0,\"type\":\"invoke\",\"f\":\"write\",\"value\":42}\n"
      "{\"index\":1,\"time\":2,\"process\":0,\"type\":\"ok\",\"f\":\"write\",\"value\":42}\n",
      "{\"index\":0,\"time\":1,\"process\":3,\"type\":\":invoke\",\"f\":\":cas\",\"key\":7,"
      "\"value\":[1,2],\"node\":1,\"epoch\":2,\"op\":9}\n"
      "{\"index\":1,\"time\":5,\"process\":3,\"type\":\"info\",\"f\":\"cas\",\"key\":7,"
      "\"value\":null}\n",
      "{\"index\":0,\"time\":1,\"process\":\"nemesis\",\"type\":\"info\",\"f\":\"kill\","
      "\"value\":[\"a\\u00e9\\n\",-9223372036854775808,[true,{}]]}\n",
  };
}

void read(std::string_view input) {
  ReadLimits limits;
  limits.line_bytes = 4096;
  const ParsedHistory parsed = parse_history(input, limits);
  if (!parsed.ok()) {
    PYRDMA_MUST(parsed.line >= 1 && parsed.message().size() < 4096);
    return;
  }
  const std::string text = to_json(parsed.history);
  const ParsedHistory again = parse_history(text);
  PYRDMA_MUST(again.ok());
  PYRDMA_MUST(to_json(again.history) == text);
}

PYRDMA_HOSTILE(History, good_files(), read)

}  // namespace
}  // namespace pyrdma::check
