#include "fuzz/fabric/words.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace pyrdma::fuzz {
namespace {

std::string describe(const AtomicOperation& op) {
  return "operation " + std::to_string(op.operation) + " (client " + std::to_string(op.client) +
         ", from " + std::to_string(op.invoked) +
         (op.known() ? " to " + std::to_string(op.returned) + " ns)" : " ns, unknown)");
}

}  // namespace

std::string AtomicWord::name() const {
  return std::string(counter ? "counter " : "register ") + std::to_string(index) + " of node " +
         std::to_string(node) + " (incarnation " + std::to_string(incarnation) + ")";
}

std::string complaint_of_counter(const AtomicWord& word) {
  std::vector<const AtomicOperation*> known;
  std::uint64_t unknown = 0;
  for (const AtomicOperation& op : word.operations) {
    if (op.known())
      known.push_back(&op);
    else
      ++unknown;
  }
  std::sort(known.begin(), known.end(), [](const AtomicOperation* a, const AtomicOperation* b) {
    return a->old != b->old ? a->old < b->old : a->operation < b->operation;
  });
  const AtomicOperation* latest = nullptr;  // the latest beginning among the previous operations
  for (std::size_t i = 0; i < known.size(); ++i) {
    const AtomicOperation& op = *known[i];
    if (i > 0 && known[i - 1]->old == op.old)
      return word.name() + ": " + describe(*known[i - 1]) + " and " + describe(op) +
             " both added to " + std::to_string(op.old);
    // The value needs at least `op.old - i` unknown additions before it.
    if (op.old > i + unknown)
      return word.name() + ": " + describe(op) + " found " + std::to_string(op.old) +
             ", with at most " + std::to_string(i + unknown) + " additions before it";
    if (latest != nullptr && latest->invoked > op.returned)
      return word.name() + ": " + describe(*latest) + " found " + std::to_string(latest->old) +
             ", but began after " + describe(op) + " had found " + std::to_string(op.old);
    if (latest == nullptr || op.invoked > latest->invoked) latest = &op;
  }
  if (!word.last) return {};
  const std::uint64_t least =
      std::max<std::uint64_t>(known.size(), known.empty() ? 0 : known.back()->old + 1);
  if (*word.last < least || *word.last > known.size() + unknown)
    return word.name() + ": holds " + std::to_string(*word.last) + " after " +
           std::to_string(known.size()) + " additions and " + std::to_string(unknown) +
           " unknown ones; the last returned " +
           (known.empty() ? std::string("nothing") : std::to_string(known.back()->old));
  return {};
}

std::string complaint_of_register(const AtomicWord& word) {
  std::unordered_set<std::uint64_t> offered{0};
  for (const AtomicOperation& op : word.operations) offered.insert(op.desired);
  std::unordered_map<std::uint64_t, const AtomicOperation*> left;  // the success from each value
  for (const AtomicOperation& op : word.operations) {
    if (!op.known()) continue;
    if (!offered.contains(op.old))
      return word.name() + ": " + describe(op) + " found " + std::to_string(op.old) +
             ", which no client wrote";
    if (op.old != op.expected) continue;
    const auto [at, first] = left.try_emplace(op.old, &op);
    if (!first)
      return word.name() + ": " + describe(*at->second) + " and " + describe(op) +
             " both swapped " + std::to_string(op.old);
  }
  if (word.last && !offered.contains(*word.last))
    return word.name() + ": holds " + std::to_string(*word.last) + ", which no client wrote";
  return {};
}

}  // namespace pyrdma::fuzz
