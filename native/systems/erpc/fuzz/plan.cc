#include "systems/erpc/fuzz/plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/rng.h"
#include "systems/erpc/management_message.h"
#include "systems/erpc/packet_header.h"

namespace pyrdma::erpc::scenario {
namespace {

constexpr std::uint32_t kLongestPause = 6000;  // ns
constexpr std::array<bool Options::*, 6> kSwitches{
    &Options::batched_timestamps,     &Options::timely_bypass,
    &Options::rate_limiter_bypass,    &Options::multi_packet_receives,
    &Options::preallocated_responses, &Options::zero_copy_receive};

/// Draws from `least` on, evenly on a logarithmic scale.
std::uint32_t log_draw(Rng& rng, double least, double most) {
  return static_cast<std::uint32_t>(least * std::pow(most / least, rng.uniform()));
}

bool coin(Rng& rng) { return rng.below(2) == 0; }

/// The most bytes of a packet: the largest size that eRPC has, if the link carries it.
std::uint32_t most_packet(const fuzz::Options& wanted) {
  return static_cast<std::uint32_t>(std::min(wanted.profile.link_mtu_bytes, 4096.0));
}

std::uint32_t packet_bytes_of(Rng& rng, std::uint32_t most) {
  constexpr std::uint32_t kLeast = kHeaderRoom + sizeof(ManagementMessage);
  constexpr std::array<std::uint32_t, 5> kSizes{0, 4096, 1024, 256, kLeast};
  return std::min(kSizes[rng.below(kSizes.size())], most);
}

std::uint32_t payload_of(const fuzz::Options& wanted, const Shape& shape) {
  const std::uint32_t packet = shape.options.packet_bytes;
  return (packet == 0 ? most_packet(wanted) : packet) - kHeaderRoom;
}

// The lengths of messages, in the number of packets. A paced session may send at its least rate
// for long, so it has no long requests.
class Lengths {
 public:
  Lengths(const fuzz::Options& wanted, const Shape& shape)
      : payload_(payload_of(wanted, shape)),
        most_(shape.options.max_message),
        sizes_(shape.sizes),
        is_paced_(shape.options.congestion_control != CongestionControl::kNone),
        has_loss_(wanted.faults[Fault::loss].rate > 0.02) {}

  std::uint32_t draw(Rng& rng, bool is_request) const {
    const std::uint64_t kind = rng.below(200);
    if (sizes_ == Sizes::kShort)
      return static_cast<std::uint32_t>(rng.below(std::min(payload_, 300U)));
    if (sizes_ == Sizes::kLong && kind < 150)
      return static_cast<std::uint32_t>(payload_ + rng.below(std::min(20 * payload_, 65536U)));
    if (kind < 20) return static_cast<std::uint32_t>(rng.below(4));
    if (kind < 40) {  // at the edge of a packet
      const auto packets = static_cast<std::uint32_t>(1 + rng.below(4));
      return packets * payload_ - 1 + static_cast<std::uint32_t>(rng.below(3));
    }
    if (kind == 199 && !(is_paced_ && is_request)) return log_draw(rng, 4, 100.0 * payload_);
    return log_draw(rng, 4, std::min(10.0 * payload_, 32768.0));
  }
  /// The longest message. One exchange of it takes some thousands of packets.
  std::uint32_t longest() const {
    return is_paced_ || has_loss_ ? 0 : std::min(most_, 2000 * payload_);
  }

 private:
  const std::uint32_t payload_, most_;
  const Sizes sizes_;
  const bool is_paced_, has_loss_;
};

}  // namespace

Shape draw_shape(const fuzz::Options& wanted) {
  Rng rng(wanted.seed, -1, "fuzz erpc shape");
  Shape shape;
  Options& options = shape.options;
  options.credits = coin(rng) ? static_cast<std::uint32_t>(1 + rng.below(4))
                              : static_cast<std::uint32_t>(1 + rng.below(32));
  options.slots = 1U << rng.below(4);
  options.backlog = coin(rng) ? static_cast<std::uint32_t>(rng.below(5)) : 1U << 20U;
  options.packet_bytes = packet_bytes_of(rng, most_packet(wanted));
  Rng links(wanted.seed, -1, "fuzz erpc link");
  const bool is_slow = wanted.preset.empty() && links.below(5) == 0;
  if (is_slow) options.packet_bytes = std::min(256U, most_packet(wanted));
  if (wanted.preset == "public") options.packet_bytes = Options::of(Preset::kPublic).packet_bytes;
  const std::uint32_t payload = payload_of(wanted, shape);
  options.preallocated_bytes = coin(rng) ? 0 : static_cast<std::uint32_t>(1 + rng.below(payload));
  options.max_message = payload < 1000 ? 1U << 20U : 8U << 20U;
  options.workers = static_cast<std::uint32_t>(rng.below(3));
  options.retransmission_timeout = log_draw(rng, 4'000, 200'000);
  // Where delays hold packets back, a much shorter timeout repeats each a hundred times.
  if (wanted.operations > 1000)
    options.retransmission_timeout = std::max(options.retransmission_timeout, 20 * kMicrosecond);
  options.failure_timeout = log_draw(rng, 300'000, 3'000'000);
  options.connect_interval = log_draw(rng, 20'000, 200'000);
  options.post_batch = static_cast<std::uint32_t>(1 + rng.below(64));
  options.receive_batch = static_cast<std::uint32_t>(1 + rng.below(64));
  options.inline_bytes = static_cast<std::uint32_t>(rng.below(3)) * 60;
  options.receive_strides = 1U << rng.below(10);
  options.congestion_control = static_cast<CongestionControl>(rng.below(3));
  options.link_gbps = coin(rng) ? 0 : 10;
  Rng mix(wanted.seed, -1, "fuzz erpc mix");
  shape.sizes = std::array{Sizes::kAll, Sizes::kAll, Sizes::kShort, Sizes::kLong}[mix.below(4)];
  constexpr std::array kFavourites{Way::kAtOnce, Way::kWorker, Way::kLate, Way::kNested};
  if (coin(mix)) shape.favourite = kFavourites[mix.below(kFavourites.size())];
  if (mix.below(4) == 0) shape.renews = mix.below(40);
  shape.keeps_lost = coin(mix);
  for (bool Options::*const each : kSwitches) options.*each = coin(rng);
  // Over a slow link a session's rate falls, and two answers later it is the link's again: then new
  // packets must wait for those that are paced.
  if (is_slow) {
    options.link_gbps = std::array{1.0, 0.3, 0.2}[links.below(3)];
    options.congestion_control = CongestionControl::kTimely;
    options.rate_limiter_bypass = true;
    options.retransmission_timeout = std::max(options.retransmission_timeout, 500 * kMicrosecond);
  }
  options.checksums = wanted.faults[Fault::corruption].rate > 0 || rng.below(8) == 0;
  shape.sessions = static_cast<std::uint32_t>(1 + rng.below(2));
  if (options.credits <= 8) shape.sessions += static_cast<std::uint32_t>(mix.below(4));
  // The end of a run needs one session of every node with every other, both ways.
  const std::uint32_t least = 2 * wanted.nodes * options.credits;
  // Some properties can be judged only where every session lives to the end.
  Rng life(wanted.seed, -1, "fuzz erpc life");
  shape.is_steady = life.below(5) == 0;
  shape.is_calm = life.below(shape.is_steady ? 2 : 6) == 0;
  shape.latest = options.failure_timeout;
  // A timeout below the round trip fills the receives with copies, behind which pings wait. The
  // memory of the first long message takes a millisecond.
  if (shape.is_calm) {
    options.retransmission_timeout = std::max(options.retransmission_timeout, 100 * kMicrosecond);
    options.failure_timeout *= 10;
  }
  shape.is_tight = rng.below(4) == 0 && !shape.is_steady && !shape.is_calm;
  // A session for which the receives do not suffice is lost after this time, and so is each request
  // of a handler that waits for it.
  options.connect_timeout = shape.is_tight ? 300 * kMicrosecond : 5 * kMillisecond;
  options.receive_entries = shape.is_tight
                                ? least + static_cast<std::uint32_t>(rng.below(options.credits))
                                : 2 * (shape.sessions + 1) * least + 64;
  // A preset decides the switches.
  const auto* const preset = std::ranges::find(kPresetNames, wanted.preset);
  if (preset != kPresetNames.end()) {
    const Options of =
        Options::of(static_cast<Preset>(std::distance(kPresetNames.begin(), preset)));
    for (bool Options::*const each : kSwitches) options.*each = of.*each;
  }
  // A paced request whose round trip is longer than a fixed timeout never ends.
  options.growing_timeouts = options.congestion_control != CongestionControl::kNone || coin(rng);
  options.adaptive_timeout = preset != kPresetNames.end() ? wanted.preset == "best" : coin(rng);
  options.least_timeout = options.retransmission_timeout / 8;
  // In a quarter of the runs the numbers of requests soon go round. In these and in half of all
  // runs the sessions have equal numbers, and their generations alone tell them apart.
  const std::uint64_t numbers = rng.below(4);
  if (numbers == 0) options.first_request = PacketHeader::kMaxRequest - rng.below(64);
  if (numbers == 1 || numbers == 2) options.first_request = 0;
  // The same with the generations and the numbers of sessions.
  if (mix.below(4) == 0) options.first_generation = PacketHeader::kGenerations - 1 - mix.below(8);
  if (mix.below(4) == 0)
    options.sessions_before = ~std::uint32_t{0} - static_cast<std::uint32_t>(mix.below(8));
  return shape;
}

std::vector<Planned> draw_plan(const fuzz::Options& options, const Shape& shape, NodeId node,
                               std::uint32_t pace) {
  const auto begin = [&](std::uint64_t i) {
    return static_cast<std::uint32_t>(options.operations * i / options.nodes);
  };
  Rng rng(options.seed, node, "fuzz erpc operations");
  const Lengths lengths(options, shape);
  // A third of the nodes has one favourite server: its slots, credits and backlog are used up.
  const bool has_favourite = rng.below(3) == 0;
  const auto favourite = static_cast<NodeId>(rng.below(options.nodes));
  const bool reopens = rng.below(3) == 0;
  const std::uint64_t longest = node == 0 && rng.below(20) == 0 ? rng.below(20) : ~0ULL;
  std::vector<Planned> plan;
  for (std::uint32_t id = begin(node); id < begin(std::uint64_t{node} + 1); ++id) {
    Planned op;
    op.id = id;
    op.pause_ns = rng.below(3) == 0 ? static_cast<std::uint32_t>(rng.below(kLongestPause)) : 0;
    op.pause_ns *= pace;
    const std::uint64_t act = rng.below(100);
    op.act = act < 2 && reopens        ? Act::kReopen
             : act < 4                 ? Act::kCrowd
             : act < 4 + shape.renews  ? Act::kRenew
             : act < 12 + shape.renews ? Act::kBurst
                                       : Act::kCall;
    if (shape.is_steady && act < 4 + shape.renews) op.act = Act::kBurst;
    const std::uint64_t way = rng.below(20);
    op.way = way < 9    ? Way::kAtOnce
             : way < 12 ? Way::kWorker
             : way < 15 ? Way::kLate
             : way < 18 ? Way::kNested
             : way < 19 ? Way::kNobody
                        : Way::kAtOnce;
    if (shape.favourite && rng.below(4) != 0) op.way = *shape.favourite;
    if (op.way == Way::kWorker && shape.options.workers == 0) op.way = Way::kLate;
    // Rarely a node asks itself.
    op.target = static_cast<NodeId>(rng.below(options.nodes));
    if (op.target == node && rng.below(4) != 0) op.target = (node + 1) % options.nodes;
    if (has_favourite && rng.below(4) != 0) op.target = favourite;
    op.session = static_cast<std::uint32_t>(rng.below(shape.sessions));
    op.request = lengths.draw(rng, true);
    op.response = lengths.draw(rng, false);
    op.is_short = rng.below(16) == 0;
    op.draw = static_cast<std::uint32_t>(rng.below(1U << 31U));
    if (plan.size() == longest && lengths.longest() != 0) {
      op.act = Act::kCall;
      op.request = lengths.longest();
      op.is_short = false;
    }
    plan.push_back(op);
  }
  return plan;
}

}  // namespace pyrdma::erpc::scenario
