// Any bytes as a history: the reader refuses them and names the line, or reads them. A history that
// was read is written and read again without change, and every model gives it a verdict or refuses
// it.
#include <algorithm>

#include "base/error.h"
#include "base/hostile_test.h"
#include "check/check.h"
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
      // A byte order mark, appends, an absent key, and two operations at once.
      "\xef\xbb\xbf{\"model\":\"kv\"}\n"
      "{\"process\":0,\"type\":\"invoke\",\"f\":\"append\",\"key\":\"k\",\"value\":\"x\"}\n"
      "{\"process\":1,\"type\":\"invoke\",\"f\":\"get\",\"key\":\"k\"}\n"
      "{\"process\":0,\"type\":\"ok\",\"f\":\"append\",\"key\":\"k\",\"value\":\"x\"}\n"
      "{\"process\":1,\"type\":\"ok\",\"f\":\"get\",\"key\":\"k\",\"value\":\"\"}\n"
      "{\"process\":1,\"type\":\"invoke\",\"f\":\"put\",\"key\":\"k\",\"value\":\"y\"}\n"
      "{\"process\":0,\"type\":\"invoke\",\"f\":\"get\",\"key\":\"k\"}\n"
      "{\"process\":0,\"type\":\"ok\",\"f\":\"get\",\"key\":\"k\",\"value\":\"xy\"}\n",
      // Ends that were widened, so that the operations of a process overlap.
      "{\"model\":\"register\",\"initial\":0,\"clock_bound_ns\":9}\n"
      "{\"time\":1,\"process\":0,\"op\":0,\"type\":\"invoke\",\"f\":\"read\"}\n"
      "{\"time\":5,\"process\":0,\"op\":1,\"type\":\"invoke\",\"f\":\"read\"}\n"
      "{\"time\":12,\"process\":0,\"op\":0,\"type\":\"ok\",\"f\":\"read\",\"value\":0}\n"
      "{\"time\":15,\"process\":0,\"op\":1,\"type\":\"ok\",\"f\":\"read\",\"value\":0}\n",
      // Time runs backwards.
      "{\"time\":9,\"process\":0,\"type\":\"invoke\",\"f\":\"deq\"}\n"
      "{\"time\":8,\"process\":0,\"type\":\"ok\",\"f\":\"deq\",\"value\":1}\n",
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
  try {
    const History widened = History::merge(std::span(&parsed.history, 1), 1'000'000);
    PYRDMA_MUST(pair_operations(widened).error.empty());
  } catch (const Error& error) {
    PYRDMA_MUST(error.code() == ErrorCode::kInvalidArgument);
  }
  for (const std::string& model : model_names()) {
    try {
      const Verdict verdict = check_history(parsed.history, model, {.configurations = 200});
      PYRDMA_MUST((verdict.answer == Answer::kYes) == verdict.text.empty());
      PYRDMA_MUST(std::ranges::none_of(
          verdict.text, [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; }));
    } catch (const Error& error) {
      PYRDMA_MUST(error.code() == ErrorCode::kInvalidArgument);
    }
  }
}

PYRDMA_HOSTILE(History, good_files(), read)

}  // namespace
}  // namespace pyrdma::check
