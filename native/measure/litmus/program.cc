#include "measure/litmus/program.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/quote.h"

namespace pyrdma::measure::litmus {
namespace {

[[noreturn]] void fail(std::string_view word, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "litmus program: " + in_quotes(word) + " " + why);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end != 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::uint32_t number(std::string_view text, std::uint32_t least, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!is_number(text) || error != std::errc() || value < least || value > most)
    fail(text, "is not a number from " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

Value small(std::string_view text) { return static_cast<Value>(number(text, 0, kMaxValue)); }

std::uint8_t byte(std::size_t index) { return static_cast<std::uint8_t>(index); }

struct Form {
  std::string_view name;
  Op op;
  std::string_view operands;  // x own word, l own location, y other node's location, s l or number,
                              // r register, n number, p node
};

constexpr Form kForms[] = {
    {"store", Op::kStore, "xn"},     {"load", Op::kLoad, "rx"},
    {"ladd", Op::kLocalAdd, "rxn"},  {"lcas", Op::kLocalSwap, "rxen"},
    {"mfence", Op::kLocalFence, ""}, {"wait", Op::kWait, "xn"},
    {"put", Op::kPut, "ys"},         {"get", Op::kGet, "ly"},
    {"fadd", Op::kAdd, "lyn"},       {"cas", Op::kSwap, "lyen"},
    {"send", Op::kSend, "p"},        {"recv", Op::kReceive, "p"},
    {"poll", Op::kPoll, ""},
};

class Parser {
 public:
  explicit Parser(Program& program) : program_(program) {}

  void location(std::string_view word) {
    const std::size_t at = word.find('@');
    if (at == 0 || at == word.npos) fail(word, "is not of the form name@node");
    Location location;
    location.name = word.substr(0, at);
    std::string_view rest = word.substr(at + 1);
    if (const std::size_t equals = rest.find('='); equals != rest.npos) {
      location.initial = small(rest.substr(equals + 1));
      rest = rest.substr(0, equals);
    }
    const std::vector<std::string_view> parts = split(rest, ':');
    if (parts.empty()) fail(word, "names no node after '@'");
    location.node = static_cast<std::uint8_t>(number(parts[0], 0, kMaxNodes - 1));
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (parts[i] == "relaxed")
        location.relaxed = true;
      else
        location.bytes = number(parts[i], 8, kMaxLocationBytes) / 8 * 8;
    }
    location.words = location.bytes > 8 ? 2 : 1;
    location.first_word = program_.words;
    program_.words = byte(program_.words + location.words);
    if (program_.words > kMaxWords)
      fail(word, "exceeds the " + std::to_string(kMaxWords) + " words of a program");
    program_.nodes = std::max(program_.nodes, byte(location.node + 1U));
    program_.locations.push_back(location);
  }

  void thread(std::string_view text) {
    const std::size_t colon = text.find(':');
    if (colon == text.npos) fail(text, "is not of the form node: instructions");
    if (program_.threads.size() == kMaxThreads)
      fail(text, "exceeds the " + std::to_string(kMaxThreads) + " threads of a program");
    TestThread& thread = program_.threads.emplace_back();
    const std::vector<std::string_view> node = split(text.substr(0, colon), ' ');
    if (node.size() != 1) fail(text, "is not of the form node: instructions");
    thread.node = static_cast<std::uint8_t>(number(node[0], 0, kMaxNodes - 1));
    program_.nodes = std::max(program_.nodes, byte(thread.node + 1U));
    for (std::string_view line : split(text.substr(colon + 1), ';')) {
      const std::vector<std::string_view> words = split(line, ' ');
      if (!words.empty()) thread.code.push_back(instruction(words, thread.node));
    }
  }

  /// A receive may name the queue pair of a thread that comes later.
  void connect_receives() {
    for (const Pending& pending : pending_) {
      const auto queue =
          std::find_if(program_.queues.begin(), program_.queues.end(), [&](const Queue& candidate) {
            return candidate.from == pending.from && candidate.to == pending.to &&
                   candidate.name == pending.name;
          });
      if (queue == program_.queues.end()) fail("recv", "has no matching send from that node");
      program_.threads[pending.thread].code[pending.at].queue =
          byte(static_cast<std::size_t>(queue - program_.queues.begin()));
    }
  }

  void observe(std::string_view word) {
    Observed observed;
    observed.name = word;
    const auto found = std::find_if(registers_.begin(), registers_.end(),
                                    [&](const Register& r) { return r.name == word; });
    if (found != registers_.end()) {
      observed.is_register = true;
      observed.index = byte(static_cast<std::size_t>(found - registers_.begin()));
      observed.thread = found->thread;
    } else {
      observed.index = own_word(word, kMaxNodes);
    }
    if (program_.observed.size() == kMaxObserved)
      fail(word, "exceeds the " + std::to_string(kMaxObserved) + " observed values of a program");
    program_.observed.push_back(observed);
  }

 private:
  struct Register {
    std::string name;
    std::uint8_t thread;
  };
  struct Pending {
    std::size_t thread, at;
    std::uint8_t from, to;
    std::string name;
  };

  std::uint8_t find_location(std::string_view name) {
    for (std::size_t i = 0; i < program_.locations.size(); ++i)
      if (program_.locations[i].name == name) return byte(i);
    fail(name, "is not a location of this program");
  }

  /// Finds a word that a thread of `node` reaches by its CPU; kMaxNodes: a word of any node.
  std::uint8_t own_word(std::string_view text, std::size_t node) {
    const std::size_t dot = text.find('.');
    const Location& location = program_.locations[find_location(text.substr(0, dot))];
    if (node != kMaxNodes && location.node != node) fail(text, "lies on another node");
    std::uint32_t half = 0;
    if (dot != text.npos) half = number(text.substr(dot + 1), 0, location.words - 1U);
    return byte(location.first_word + half);
  }

  std::uint8_t add_register(std::string_view name) {
    for (const Register& known : registers_)
      if (known.name == name) fail(name, "is written twice; use another register");
    if (registers_.size() == kMaxRegisters)
      fail(name, "exceeds the " + std::to_string(kMaxRegisters) + " registers of a program");
    registers_.push_back({std::string(name), byte(program_.threads.size() - 1)});
    program_.registers = byte(registers_.size());
    return byte(registers_.size() - 1);
  }

  std::uint8_t queue_to(std::uint8_t to, std::uint8_t from, const std::string& name) {
    const std::uint8_t thread = byte(program_.threads.size() - 1);
    std::uint8_t channels = 0;
    for (std::size_t i = 0; i < program_.queues.size(); ++i) {
      const Queue& queue = program_.queues[i];
      if (queue.thread == thread && queue.to == to && queue.name == name) return byte(i);
      channels = byte(channels + ((queue.from == from && queue.to == to) ||
                                  (queue.from == to && queue.to == from)));
    }
    program_.queues.push_back({thread, from, to, name, channels});
    return byte(program_.queues.size() - 1);
  }

  Instruction instruction(const std::vector<std::string_view>& words, std::uint8_t node) {
    Instruction result;
    std::string_view head = words[0];
    for (const std::string_view flag : {".fence", ".inline"}) {
      const std::size_t at = head.find(flag);
      if (at == head.npos) continue;
      (flag == ".fence" ? result.fence : result.is_inline) = true;
      head = head.substr(0, at);
    }
    const std::size_t hash = head.find('#');
    const std::string queue_name(hash == head.npos ? "" : head.substr(hash + 1));
    head = head.substr(0, hash);
    const auto form = std::find_if(std::begin(kForms), std::end(kForms),
                                   [&](const Form& f) { return f.name == head; });
    if (form == std::end(kForms)) fail(words[0], "is not an instruction");
    if (words.size() != form->operands.size() + 1)
      fail(words[0], "takes " + std::to_string(form->operands.size()) + " operands");
    result.op = form->op;
    std::uint8_t peer = node;
    for (std::size_t i = 0; i < form->operands.size(); ++i) {
      const std::string_view word = words[i + 1];
      switch (form->operands[i]) {
        case 'x':
          result.word = own_word(word, node);
          break;
        case 's':
          if (is_number(word)) {
            result.value = small(word);
            break;
          }
          result.from_memory = true;
          [[fallthrough]];
        case 'l':
          result.local = find_location(word);
          own_word(word, node);
          break;
        case 'y':
          result.remote = find_location(word);
          peer = program_.locations[result.remote].node;
          break;
        case 'r':
          result.reg = add_register(word);
          break;
        case 'e':
          result.expected = small(word);
          break;
        case 'p':
          peer = static_cast<std::uint8_t>(number(word, 0, kMaxNodes - 1));
          break;
        default:
          result.value = small(word);
      }
    }
    if (result.op == Op::kReceive) {
      pending_.push_back({program_.threads.size() - 1, program_.threads.back().code.size(), peer,
                          node, queue_name});
    } else if (result.is_request()) {
      if (peer == node) fail(words[0], "must target another node");
      check_sizes(words[0], result);
      result.queue = queue_to(peer, node, queue_name);
      result.request = program_.requests++;
      if (program_.requests > kMaxRequests)
        fail(words[0], "exceeds the " + std::to_string(kMaxRequests) + " requests of a program");
    }
    return result;
  }

  void check_sizes(std::string_view word, const Instruction& i) {
    if (i.op == Op::kSend || (i.op == Op::kPut && !i.from_memory)) return;
    const Location& local = program_.locations[i.local];
    const Location& remote = program_.locations[i.remote];
    if (local.bytes != remote.bytes) fail(word, "names locations of different sizes");
    if ((i.op == Op::kAdd || i.op == Op::kSwap) && remote.bytes != 8)
      fail(word, "needs locations of 8 bytes");
  }

  Program& program_;
  std::vector<Register> registers_;
  std::vector<Pending> pending_;
};

}  // namespace

const Location& Program::location_of(std::uint8_t word) const {
  return *std::find_if(locations.begin(), locations.end(),
                       [word](const Location& l) { return word < l.first_word + l.words; });
}

std::string Program::text(Outcome outcome) const {
  std::string result;
  for (const Observed& value : observed) {
    if (!result.empty()) result += ' ';
    result += value.name + '=' + std::to_string(outcome & 0xff);
    outcome >>= 8;
  }
  return result;
}

Outcome Program::outcome(std::string_view text) const {
  Outcome result = 0;
  const std::vector<std::string_view> parts = split(text, ' ');
  if (parts.size() != observed.size()) fail(text, "does not have one value for each observed name");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t equals = std::min(parts[i].find('='), parts[i].size() - 1);
    if (parts[i].substr(0, equals) != observed[i].name)
      fail(parts[i], "is not the next observed name");
    result |= Outcome{static_cast<Value>(number(parts[i].substr(equals + 1), 0, 255))} << 8 * i;
  }
  return result;
}

Program parse(std::string_view locations, std::string_view threads, std::string_view observed) {
  Program program;
  Parser parser(program);
  for (std::string_view word : split(locations, ' ')) parser.location(word);
  for (std::string_view text : split(threads, '|')) parser.thread(text);
  parser.connect_receives();
  for (std::string_view word : split(observed, ' ')) parser.observe(word);
  if (program.threads.empty()) fail(threads, "names no thread");
  if (program.observed.empty()) fail(observed, "names no register or word to observe");
  return program;
}

}  // namespace pyrdma::measure::litmus
