#include "fuzz/fabric/plan.h"

#include <algorithm>

#include "fabric/types.h"

namespace pyrdma::fuzz {
namespace {

// One operation in this many belongs to a node, not to a link. The seed draws which.
constexpr std::array<std::uint32_t, 4> kNodeShares{2, 5, 10, 20};
// The factors by which a seed has a kind of operation more or less often.
constexpr std::array<std::uint32_t, 6> kFactors{0, 1, 1, 1, 1, 5};
constexpr std::uint32_t kLongestBatch = 16;
constexpr std::uint32_t kPerWord = 40;

struct Share {
  Kind kind;
  std::uint32_t weight;
};
constexpr std::array<Share, 10> kLinkKinds{{{Kind::kWrite, 24},
                                            {Kind::kWriteImm, 5},
                                            {Kind::kRead, 14},
                                            {Kind::kReadOther, 15},
                                            {Kind::kFetchAdd, 9},
                                            {Kind::kCompareSwap, 9},
                                            {Kind::kSend, 8},
                                            {Kind::kSendImm, 4},
                                            {Kind::kUcWrite, 7},
                                            {Kind::kUcSend, 5}}};
constexpr std::array<Share, 6> kOwnKinds{{{Kind::kDatagram, 45},
                                          {Kind::kDcWrite, 15},
                                          {Kind::kDcRead, 15},
                                          {Kind::kDcFetchAdd, 8},
                                          {Kind::kDcSend, 7},
                                          {Kind::kLogAppend, 40}}};

/// The kinds of operations of a run, and how often each is drawn.
template <std::size_t N>
class Mix {
 public:
  Mix(std::array<Share, N> shares, std::uint64_t seed) : shares_(shares) {
    Rng rng(seed, static_cast<std::int64_t>(N), "fuzz mix of operations");
    for (Share& share : shares_) all_ += share.weight *= kFactors[rng.below(kFactors.size())];
    if (all_ > 0) return;
    shares_ = shares;
    for (const Share& share : shares_) all_ += share.weight;
  }
  Kind pick(Rng& rng) const {
    std::uint64_t at = rng.below(all_);
    for (const Share& share : shares_) {
      if (at < share.weight) return share.kind;
      at -= share.weight;
    }
    return shares_.back().kind;
  }

 private:
  std::array<Share, N> shares_;
  std::uint64_t all_ = 0;
};
struct Load {
  explicit Load(std::uint64_t seed) : links(kLinkKinds, seed), own(kOwnKinds, seed) {}
  Mix<kLinkKinds.size()> links;
  Mix<kOwnKinds.size()> own;
};

struct Numbers {
  std::uint32_t first, count;
};

// Numbers the operations: links in the order of (from, to); a node's own operations have from equal
// to to.
Numbers numbers_of(const Options& options, NodeId from, NodeId to) {
  const std::uint32_t n = options.nodes, links = n * (n - 1);
  Rng rng(options.seed, -1, "fuzz share of nodes");
  const std::uint32_t of_nodes = options.operations / kNodeShares[rng.below(kNodeShares.size())];
  const std::uint32_t of_links = options.operations - of_nodes;
  auto part = [](std::uint32_t all, std::uint32_t parts, std::uint32_t index) {
    const auto begin = [&](std::uint64_t i) {
      return static_cast<std::uint32_t>(std::uint64_t{all} * i / parts);
    };
    return Numbers{begin(index), begin(index + 1) - begin(index)};
  };
  if (from == to) {
    Numbers own = part(of_nodes, n, from);
    own.first += of_links;
    return own;
  }
  return part(of_links, links, from * (n - 1) + to - (to > from));
}

// Clients use the same words at the same time and then move on to others, so that the history of
// each word stays short.
std::uint16_t word_at(const Options& options, std::uint32_t index, std::uint32_t count, Rng& rng) {
  const std::uint32_t words = atomic_words(options);
  const auto base = static_cast<std::uint32_t>(std::uint64_t{index} * words / std::max(count, 1u));
  return static_cast<std::uint16_t>(
      std::min<std::uint32_t>(words - 1, base + static_cast<std::uint32_t>(rng.below(2))));
}

// `previous` is the previous operation of the same batch, or null.
PlannedOperation draw_one(const Options& options, const Load& load, bool of_node,
                          std::uint32_t index, std::uint32_t count,
                          const PlannedOperation* previous, Rng& rng) {
  PlannedOperation op;
  op.kind = of_node ? load.own.pick(rng) : load.links.pick(rng);
  if (previous != nullptr && route_of(op.kind) != route_of(previous->kind))
    op.kind = previous->kind;
  if (options.profile.nic_has_dc == 0 && route_of(op.kind) == Route::kDc) op.kind = Kind::kDatagram;
  op.flags = rng.below(3) == 0 ? fabric::kSignaled : 0;
  op.length = static_cast<std::uint16_t>(8 * (1 + rng.below(kMostBytes / 8)));
  op.target = static_cast<std::uint8_t>(rng.below(options.nodes));
  if (rng.below(4) == 0) op.flags |= fabric::kFence;
  const bool is_inline = rng.below(4) == 0;
  switch (op.kind) {
    case Kind::kFetchAdd:
    case Kind::kDcFetchAdd:
    case Kind::kCompareSwap:
      op.place = word_at(options, index, count, rng);
      break;
    case Kind::kReadOther:
      op.place = static_cast<std::uint16_t>(rng.below(kRecords));
      break;
    case Kind::kUcWrite:
      op.place = static_cast<std::uint16_t>(kFirstUc + rng.below(kFirstDc - kFirstUc));
      break;
    case Kind::kDcWrite:
    case Kind::kDcRead:
      op.place = static_cast<std::uint16_t>(kFirstDc + rng.below(kRecords - kFirstDc));
      break;
    default:
      op.place = static_cast<std::uint16_t>(rng.below(kFirstUc));
  }
  const bool reads = op.kind == Kind::kRead || op.kind == Kind::kReadOther ||
                     op.kind == Kind::kFetchAdd || op.kind == Kind::kCompareSwap ||
                     op.kind == Kind::kDcRead || op.kind == Kind::kDcFetchAdd;
  if (is_inline && !reads) op.flags |= fabric::kInline;
  return op;
}

}  // namespace

const char* to_string(Kind kind) {
  constexpr std::array<const char*, 16> kNames{
      "write",   "write_imm",    "read",     "read_other", "fetch_add", "compare_swap",
      "send",    "send_imm",     "uc_write", "uc_send",    "datagram",  "dc_write",
      "dc_read", "dc_fetch_add", "dc_send",  "log_append"};
  return kNames[static_cast<std::size_t>(kind)];
}

Route route_of(Kind kind) {
  switch (kind) {
    case Kind::kUcWrite:
    case Kind::kUcSend:
      return Route::kUc;
    case Kind::kDatagram:
      return Route::kUd;
    case Kind::kDcWrite:
    case Kind::kDcRead:
    case Kind::kDcFetchAdd:
    case Kind::kDcSend:
      return Route::kDc;
    case Kind::kLogAppend:
      return Route::kDisk;
    default:
      return Route::kRc;
  }
}

std::uint32_t atomic_words(const Options& options) {
  return std::max(1u, options.operations / options.nodes / 10 / kPerWord);
}

Plan draw_plan(const Options& options, NodeId from, NodeId to, Time span) {
  const Numbers numbers = numbers_of(options, from, to);
  Rng rng(options.seed, from * options.nodes + to, "fuzz operations");
  const Load load(options.seed);
  Plan plan;
  plan.reserve(numbers.count + 3);
  std::uint32_t left = 0;
  for (std::uint32_t i = 0; i < numbers.count; ++i) {
    PlannedOperation op = draw_one(options, load, from == to, i, numbers.count,
                                   left == 0 ? nullptr : &plan.back(), rng);
    op.id = numbers.first + i;
    if (left == 0) {
      left = 1 + static_cast<std::uint32_t>(rng.below(kLongestBatch));
      // A batch has (1 + longest) / 2 operations on average. The pause is at most twice the mean.
      const double batches = 1 + 2.0 * numbers.count / (1 + kLongestBatch);
      const double mean = static_cast<double>(span) / batches;
      op.pause_ns = static_cast<std::uint32_t>(1 + std::min(2 * mean, 4e9) * rng.uniform());
    }
    --left;
    plan.push_back(op);
  }
  PlannedOperation probe;
  probe.probe = true;
  probe.flags = fabric::kSignaled;
  probe.id = options.operations;
  probe.target = static_cast<std::uint8_t>((from + 1) % options.nodes);
  const auto add = [&](Kind kind, std::uint16_t place) {
    probe.kind = kind;
    probe.place = place;
    plan.push_back(probe);
  };
  if (from != to) {
    add(Kind::kWrite, 2);
    add(Kind::kRead, 2);
    add(Kind::kFetchAdd, 0);
  } else {
    if (options.profile.nic_has_dc != 0) {
      add(Kind::kDcWrite, kFirstDc);
      add(Kind::kDcRead, kFirstDc);
    }
    add(Kind::kLogAppend, 0);
  }
  std::erase_if(plan,
                [&](const PlannedOperation& op) { return !op.probe && !options.keeps(op.id); });
  return plan;
}

}  // namespace pyrdma::fuzz
