#include "fuzz/fabric/world.h"

#include <algorithm>

namespace pyrdma::fuzz {

Arena::Arena(std::size_t bytes) : bytes_(bytes), memory_(bytes + 3 * kGuard) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_.data());
  data_ = memory_.data() + (kGuard - begin % kGuard) % kGuard + kGuard;
  std::fill_n(data_ - kGuard, kGuard, kPattern);
  std::fill_n(data_ + bytes_, kGuard, kPattern);
}

bool Arena::guards_intact() const {
  const auto kept = [](const std::byte* at) {
    return std::all_of(at, at + kGuard, [](std::byte byte) { return byte == kPattern; });
  };
  return kept(data_ - kGuard) && kept(data_ + bytes_);
}

Layout::Layout(const Options& options)
    : words(atomic_words(options)),
      records((std::size_t{words} * 16 + 63) / 64 * 64),
      bytes(records + std::size_t{options.nodes} * kRecords * kMostBytes) {}

World::World(const Options& wanted, Outcome& result)
    : options(wanted),
      outcome(result),
      layout(wanted),
      nodes(wanted.nodes),
      tears(wanted.memory.is_weak() || on(Fault::torn_crash) || on(Fault::placement_reorder)),
      any_order(on(Fault::placement_reorder)),
      pairs_(std::size_t{wanted.nodes} * wanted.nodes),
      records_(std::size_t{wanted.nodes} * wanted.nodes * kRecords),
      current_(std::size_t{wanted.nodes} * 2 * layout.words) {
  // Connections that fail delay their operations. So the plans end before the faults do.
  const Time span = options.faults.heal_at / 2;
  for (NodeId from = 0; from < options.nodes; ++from)
    for (NodeId to = 0; to < options.nodes; ++to) {
      auto& client = clients_.emplace_back(std::make_unique<ClientState>());
      client->from = from;
      client->to = to;
      client->id = from * options.nodes + to;
      client->plan = draw_plan(options, from, to, span);
      ++unfinished_;
    }
  words.reserve(std::size_t{options.nodes} * 2 * layout.words);
}

void World::violation(const char* kind, const std::string& text) {
  outcome.report(kind, now(), text);
}

AtomicWord& World::word(NodeId target, std::uint32_t incarnation, bool counter,
                        std::uint32_t index) {
  std::size_t& at = current_[(target * std::size_t{2} + counter) * layout.words + index];
  // A request to an earlier incarnation may end after the first request to the next one.
  if (at != 0 && words[at - 1].incarnation == incarnation) return words[at - 1];
  if (at != 0 && words[at - 1].incarnation > incarnation)
    for (AtomicWord& word : words)
      if (word.node == target && word.index == index && word.counter == counter &&
          word.incarnation == incarnation)
        return word;
  AtomicWord& word = words.emplace_back();
  word.node = target;
  word.incarnation = incarnation;
  word.index = index;
  word.counter = counter;
  word.operations.reserve(48);
  if (at == 0 || words[at - 1].incarnation < incarnation) at = words.size();
  return word;
}

void World::renew(NodeId a, NodeId b, std::uint32_t generation) {
  PairState& state = pair(a, b);
  if (state.generation > generation) return;
  state.generation = generation + 1;
  wake(client(a, b));
  wake(client(b, a));
}

void World::wake(ClientState& client) {
  if (client.env == nullptr) return;
  client.env->notify(client.control);
  if (client.queue != nullptr) client.env->notify(client.queue->watch());
}

void World::finish(ClientState& client) {
  client.done = true;
  if (--unfinished_ > 0) return;
  finished_ = true;
  for (const auto& each : clients_) wake(*each);
}

void World::judge_read(const char* what, const Versions& found, std::uint32_t least,
                       std::uint32_t most, const ClientState& reader, const PlannedOperation& op) {
  const auto where = [&] {
    return std::string(what) + " of operation " + std::to_string(op.id) + " (client " +
           std::to_string(reader.from) + " to " + std::to_string(reader.to) + ", record " +
           std::to_string(op.place) + ")";
  };
  if (found.most == kNoVersion)
    return violation("read", where() + ": found words that no client wrote there");
  if (found.least < least || found.most > most)
    return violation("read", where() + ": found versions " + std::to_string(found.least) + " to " +
                                 std::to_string(found.most) + "; possible are " +
                                 std::to_string(least) + " to " + std::to_string(most));
  if (found.least == found.most) return;
  ++outcome.torn_reads;
  if (!tears)
    violation("torn", where() + ": mixes versions " + std::to_string(found.least) + " and " +
                          std::to_string(found.most) +
                          ", which strong memory without faults of placement does not allow");
}

std::string World::unfinished() const {
  std::string text;
  for (const auto& client : clients_)
    if (!client->done && text.size() < 300)
      text.append(" ")
          .append(std::to_string(client->from))
          .append(" to ")
          .append(std::to_string(client->to))
          .append(" (at ")
          .append(std::to_string(client->next))
          .append(" of ")
          .append(std::to_string(client->plan.size()))
          .append(")");
  return text;
}

void World::check_words() {
  for (AtomicWord& word : words) {
    const NodeState& node = nodes[word.node];
    if (word.incarnation + 1 == node.incarnations && node.shared) {
      const std::size_t at = word.counter ? layout.counter(word.index) : layout.cell(word.index);
      word.last = load_acquire(reinterpret_cast<const std::uint64_t*>(node.shared->data() + at));
    }
    const std::string complaint =
        word.counter ? complaint_of_counter(word) : complaint_of_register(word);
    if (!complaint.empty()) violation("atomic", complaint);
  }
}

void World::check_memory() {
  outcome.made("memory");
  for (NodeId node = 0; node < options.nodes; ++node) {
    if (nodes[node].shared) nodes[node].all.push_back(std::move(nodes[node].shared));
    for (const auto& arena : nodes[node].all)
      if (!arena->guards_intact())
        violation("memory", "node " + std::to_string(node) +
                                ": bytes beside its registered memory have changed");
  }
}

}  // namespace pyrdma::fuzz
