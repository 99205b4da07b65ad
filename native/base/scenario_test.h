// Scenarios as data: a text file beside a test has blocks of steps and of their output.
//
//   # A comment.
//   write 1
//   await a until=send      each line is a step: a command, its words, its settings
//   ----
//   1 success               the output of the block's steps, up to an empty line
//
// PYRDMA_REWRITE=1 native_tests --gtest_filter=... writes the output of the steps to the files.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace pyrdma {

/// A line of a scenario: `command word word name=value name=value`.
class ScenarioStep {
 public:
  explicit ScenarioStep(const std::string& line) : line_(line) {
    std::istringstream input(line);
    input >> command;
    for (std::string word; input >> word;) {
      const std::size_t sign = word.find('=');
      if (sign == std::string::npos)
        words_.push_back(word);
      else
        settings_[word.substr(0, sign)] = word.substr(sign + 1);
    }
  }
  /// The word at a place; fails when the line is shorter.
  std::string word(std::size_t at) const {
    used_words_ = std::max(used_words_, at + 1);
    return at < words_.size() ? words_[at] : throw wrong("lacks a word");
  }
  std::uint64_t number(std::size_t at) const { return to_number(word(at)); }
  /// A setting, or `otherwise` where the line has none.
  std::string setting(const std::string& name, const std::string& otherwise) const {
    used_.insert(name);
    const auto found = settings_.find(name);
    return found == settings_.end() ? otherwise : found->second;
  }
  std::uint64_t setting(const std::string& name, std::uint64_t otherwise) const {
    const std::string text = setting(name, std::string());
    return text.empty() ? otherwise : to_number(text);
  }
  /// The error of a step that cannot be carried out.
  std::invalid_argument wrong(const std::string& why) const {
    return std::invalid_argument("step '" + line_ + "' " + why);
  }
  /// Throws when the line has a word or a setting that no step has read: it is misspelt.
  void expect_all_used() const {
    if (words_.size() > used_words_) throw wrong("has too many words");
    for (const auto& [name, value] : settings_)
      if (!used_.contains(name)) throw wrong("has an unknown setting " + name);
  }
  std::string command;

 private:
  std::uint64_t to_number(const std::string& text) const {
    std::size_t end = 0;
    std::uint64_t value = 0;
    try {
      value = std::stoull(text, &end);
    } catch (const std::logic_error&) {
      end = 0;
    }
    return end != 0 && end == text.size() ? value : throw wrong("needs a number for " + text);
  }
  std::string line_;
  std::vector<std::string> words_;
  std::map<std::string, std::string> settings_;
  mutable std::size_t used_words_ = 0;
  mutable std::set<std::string> used_;
};

/// Returns the path of a file of native/, or an absolute path. The search goes upwards from the
/// program, because build folders lie in the tree.
inline std::filesystem::path native_file(const std::string& name) {
  auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  while (!std::filesystem::exists(folder / "native" / name)) {
    if (folder == folder.root_path())
      throw std::invalid_argument("no folder above the program has native/" + name);
    folder = folder.parent_path();
  }
  return folder / "native" / name;
}

/// Carries out the steps of native/`name` in order; `act` returns the output of a step, or nothing.
inline void run_scenario(const std::string& name,
                         const std::function<std::string(const ScenarioStep&)>& act) {
  const std::filesystem::path path = native_file(name);
  std::ifstream file(path);
  std::string rewritten, shown;
  int number = 0, blocks = 0;
  try {
    for (std::string line; std::getline(file, line);) {
      ++number;
      rewritten += line + '\n';
      if (line.empty() || line[0] == '#') continue;
      if (line != "----") {
        const ScenarioStep step(line);
        const std::string more = act(step);
        step.expect_all_used();
        if (!more.empty()) shown += more + '\n';
        continue;
      }
      std::string expected;
      const int begin = number;
      for (; std::getline(file, line) && !line.empty(); ++number) expected += line + '\n';
      ++number;
      if (std::getenv("PYRDMA_REWRITE") == nullptr) {
        EXPECT_EQ(expected, shown) << name << ':' << begin;
      }
      rewritten += shown + (file.eof() ? "" : "\n");
      shown.clear();
      ++blocks;
    }
  } catch (const std::exception& error) {
    ADD_FAILURE() << name << ':' << number << ": " << error.what();
    return;
  }
  EXPECT_EQ(shown, "") << name << " ends with steps that no ---- follows";
  EXPECT_GT(blocks, 0) << name << " has no blocks";
  if (std::getenv("PYRDMA_REWRITE") != nullptr) std::ofstream(path) << rewritten;
}

}  // namespace pyrdma
