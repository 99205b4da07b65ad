#include "systems/spindle/membership/control_row.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/remote_word.h"

namespace pyrdma::spindle {

namespace {

// Version, checksum, length, then the fields.
constexpr std::size_t kRowHeader = 24;
constexpr std::uint8_t kLeaving = 1, kCommitted = 2, kWedged = 4, kAccepted = 8;

std::size_t counted_senders(const ViewShape& shape) {
  std::size_t count = 0;
  for (const SubgroupShape& subgroup : shape.subgroups) count += subgroup.senders.size();
  return count;
}

void put_rounds(ByteWriter& out, const Rounds& rounds) {
  for (const std::uint64_t each : rounds) out.put(each);
}

Rounds get_rounds(ByteReader& in, std::size_t count) {
  Rounds rounds(count);
  for (std::uint64_t& each : rounds) each = in.get<std::uint64_t>();
  return rounds;
}

void put_proposal(ByteWriter& out, const Proposal& proposal) {
  out.put(static_cast<std::uint8_t>(proposal.leader));
  out.put(static_cast<std::uint16_t>(proposal.changes.size()));
  for (const Change& change : proposal.changes) {
    out.put(static_cast<std::uint8_t>(change.kind));
    out.put(change.member.node);
    out.put(change.member.incarnation);
  }
  put_rounds(out, proposal.trim);
}

bool is_removed(const std::vector<Change>& changes, Member member) {
  return std::ranges::find(changes, Change{Change::Kind::kRemove, member}) != changes.end();
}

/// Whether the changes lead to a view: each node is in it once.
bool is_sound(const ViewShape& shape, const std::vector<Change>& changes, NodeId nodes) {
  for (const Change& change : changes) {
    if (change.kind == Change::Kind::kRemove && !shape.rank_of(change.member)) return false;
  }
  const std::vector<Member> next = members_after(shape, changes);
  if (next.empty() || next.size() > kMostMembers) return false;
  return std::ranges::all_of(next, [&](const Member& member) {
    return member.node < nodes && std::ranges::count(next, member.node, &Member::node) == 1;
  });
}

std::optional<Proposal> get_proposal(ByteReader& in, const ViewShape& shape, NodeId nodes) {
  Proposal proposal;
  proposal.leader = in.get<std::uint8_t>();
  const auto changes = in.get<std::uint16_t>();
  if (proposal.leader >= shape.size() || changes > kMostChanges) return std::nullopt;
  for (std::uint16_t i = 0; i < changes; ++i) {
    Change& change = proposal.changes.emplace_back();
    const auto kind = in.get<std::uint8_t>();
    if (kind > static_cast<std::uint8_t>(Change::Kind::kJoin)) return std::nullopt;
    change.kind = static_cast<Change::Kind>(kind);
    change.member.node = in.get<std::uint32_t>();
    change.member.incarnation = in.get<std::uint32_t>();
  }
  proposal.trim = get_rounds(in, counted_senders(shape));
  if (!is_sound(shape, proposal.changes, nodes)) return std::nullopt;
  return proposal;
}

}  // namespace

std::uint64_t most_control_bytes(const ViewShape& shape) {
  constexpr std::size_t kChangeBytes = 9;
  const std::size_t fields = 2 * 8 + 1 + 1 + 2 + kMostChanges * kChangeBytes;
  return (kRowHeader + fields + 2 * 8 * counted_senders(shape) + 7) / 8 * 8;
}

Bytes encode(const ControlRow& row) {
  Bytes body;
  body.reserve(64);
  ByteWriter out(body);
  out.put(row.suspected);
  out.put(row.accusers);
  out.put(static_cast<std::uint8_t>((row.leaving ? kLeaving : 0) |
                                    (row.committed ? kCommitted : 0) | (row.wedged ? kWedged : 0) |
                                    (row.accepted ? kAccepted : 0)));
  if (row.wedged) put_rounds(out, row.received);
  if (row.accepted) put_proposal(out, *row.accepted);
  out.align();
  Bytes bytes;
  bytes.reserve(kRowHeader + body.size());
  ByteWriter all(bytes);
  all.put(row.version);
  all.put(checksum(body, row.version));
  all.put(static_cast<std::uint64_t>(body.size()));
  all.put(ByteView(body));
  return bytes;
}

std::uint64_t version_of(const std::byte* row) {
  return load_acquire(reinterpret_cast<const std::uint64_t*>(row));
}

std::vector<Member> members_after(const ViewShape& shape, const std::vector<Change>& changes) {
  std::vector<Member> next;
  for (const Member& member : shape.members) {
    if (!is_removed(changes, member)) next.push_back(member);
  }
  for (const Change& change : changes) {
    if (change.kind == Change::Kind::kJoin) next.push_back(change.member);
  }
  return next;
}

std::optional<ControlRow> decode(ByteView bytes, const ViewShape& shape, NodeId nodes, Bugs bugs) {
  ByteReader head(bytes);
  ControlRow row;
  row.version = head.get<std::uint64_t>();
  const auto sum = head.get<std::uint64_t>();
  const auto length = head.get<std::uint64_t>();
  if (!head.ok() || row.version == 0 || length > head.left()) return std::nullopt;
  const ByteView body = head.bytes(length);
  if (bugs.checks_rows() && checksum(body, row.version) != sum) return std::nullopt;
  ByteReader in(body);
  row.suspected = in.get<std::uint64_t>();
  row.accusers = in.get<std::uint64_t>();
  if (shape.size() < kMostMembers && row.suspected >> shape.size() != 0) return std::nullopt;
  if ((row.accusers & ~row.suspected) != 0) return std::nullopt;
  const auto flags = in.get<std::uint8_t>();
  row.leaving = (flags & kLeaving) != 0;
  row.committed = (flags & kCommitted) != 0;
  row.wedged = (flags & kWedged) != 0;
  if (row.wedged) row.received = get_rounds(in, counted_senders(shape));
  if ((flags & kAccepted) != 0) {
    row.accepted = get_proposal(in, shape, nodes);
    if (!row.accepted) return std::nullopt;
  }
  if (row.committed && !row.accepted) return std::nullopt;
  if (!in.ok()) return std::nullopt;
  return row;
}

}  // namespace pyrdma::spindle
