#include "systems/spindle/whole_state.h"

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "systems/spindle/membership/control_channel.h"

namespace pyrdma::spindle {

void WholeState::save(std::uint32_t subgroup) {
  std::optional<Snapshot>& kept = kept_[subgroup];
  kept.reset();
  if (std::optional<Bytes> state = save_ ? save_(subgroup) : std::nullopt)
    kept = {checksum(*state), *std::move(state)};
}

// The request: how many bytes the joiner has. The answer: the checksum of the whole, its length,
// the next bytes.
std::optional<Bytes> WholeState::give(std::uint32_t subgroup, ByteView request) const {
  const std::optional<Snapshot>& kept = kept_[subgroup];
  if (!kept) return std::nullopt;
  const auto from =
      std::min<std::uint64_t>(ByteReader(request).get<std::uint64_t>(), kept->bytes.size());
  Bytes answer;
  ByteWriter out(answer);
  out.put(kept->sum);
  out.put(static_cast<std::uint64_t>(kept->bytes.size()));
  const ByteView rest = ByteView(kept->bytes).subspan(from);
  out.put(rest.first(std::min<std::size_t>(rest.size(), ControlChannel::kMostPart)));
  return answer;
}

std::optional<Bytes> WholeState::ask(std::uint32_t subgroup, bool begins) {
  Coming& coming = coming_[subgroup];
  if (begins) coming = {};
  if (coming.is_whole) return std::nullopt;
  Bytes request;
  ByteWriter(request).put(static_cast<std::uint64_t>(coming.snapshot.bytes.size()));
  return request;
}

// Another member may have another snapshot of the same state. Then the joiner begins again.
bool WholeState::take(std::uint32_t subgroup, ByteView answer) {
  Coming& coming = coming_[subgroup];
  Snapshot& snapshot = coming.snapshot;
  ByteReader in(answer);
  const auto sum = in.get<std::uint64_t>();
  const auto size = in.get<std::uint64_t>();
  if (!in.ok()) return false;
  if (std::exchange(snapshot.sum, sum) != sum && !snapshot.bytes.empty()) {
    snapshot.bytes.clear();
    return true;
  }
  const ByteView more = in.bytes(in.left());
  snapshot.bytes.insert(snapshot.bytes.end(), more.begin(), more.end());
  if (snapshot.bytes.size() < size) return !more.empty();
  coming.is_whole = checksum(snapshot.bytes) == sum;
  if (coming.is_whole) load_(subgroup, snapshot.bytes);
  snapshot = {};
  return coming.is_whole;
}

void WholeState::drop() { std::ranges::fill(kept_, std::nullopt); }

}  // namespace pyrdma::spindle
