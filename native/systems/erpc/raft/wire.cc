#include "systems/erpc/raft/wire.h"

#include <algorithm>

namespace pyrdma::erpc::raft {

namespace {

constexpr std::uint8_t kWireVersion = 1;
constexpr std::size_t kEntryHeader = 16;

/// Puts the fields of each type of message.
struct FieldWriter {
  ByteWriter& out;
  void operator()(const AppendEntries& m) const {
    numbers(m.term, m.previous_index, m.previous_term, m.commit);
    out.put(static_cast<std::uint64_t>(m.entries.size()));
    for (const EntryView& entry : m.entries) {
      out.put(entry.term);
      out.put(static_cast<std::uint32_t>(entry.type));
      out.put(static_cast<std::uint32_t>(entry.payload.size()));
      out.put(entry.payload);
    }
  }
  void operator()(const AppendResult& m) const { numbers(m.term, m.rejected, m.last_index); }
  void operator()(const RequestVote& m) const {
    numbers(m.term, m.candidate, m.last_index, m.last_term);
    out.put(static_cast<std::uint8_t>(m.disrupt_leader));
    out.put(static_cast<std::uint8_t>(m.pre_vote));
  }
  void operator()(const VoteResult& m) const {
    numbers(m.term);
    out.put(static_cast<std::uint8_t>(m.granted));
    out.put(m.pre_vote);
  }
  void operator()(const InstallSnapshot& m) const {
    numbers(m.term, m.last_index, m.last_term, m.servers_index);
    out.put(static_cast<std::uint64_t>(m.servers.size()));
    for (const Server& server : m.servers) {
      out.put(server.id);
      out.put(static_cast<std::uint8_t>(server.role));
    }
    out.put(m.data);
  }
  void operator()(const TimeoutNow& m) const { numbers(m.term, m.last_index, m.last_term); }

  template <class... N>
  void numbers(N... n) const {
    (out.put(n), ...);
  }
};

/// Reads fields; `fine` is false once a field was out of its bounds.
struct FieldReader {
  ByteReader in;
  bool fine = true;

  void check(bool condition) { fine = fine && condition; }
  std::uint64_t number(std::uint64_t least = 0) {
    const auto value = in.get<std::uint64_t>();
    check(value >= least && value <= kMaxNumber);
    return value;
  }
  bool flag() {
    const auto value = in.get<std::uint8_t>();
    check(value <= 1);
    return value == 1;
  }
  /// An index and the term of its entry; both are zero before the first entry.
  void position(std::uint64_t& index, std::uint64_t& position_term, std::uint64_t term) {
    index = number();
    position_term = number();
    check((index == 0) == (position_term == 0) && position_term <= term);
  }
  Role role() {
    const auto value = in.get<std::uint8_t>();
    check(value <= static_cast<std::uint8_t>(Role::kSpare));
    return static_cast<Role>(value);
  }

  AppendEntries append_entries() {
    AppendEntries m;
    m.term = number(1);
    position(m.previous_index, m.previous_term, m.term);
    m.commit = number();
    const auto count = in.get<std::uint64_t>();
    check(count <= kMaxEntries && count <= in.left() / kEntryHeader);
    std::uint64_t before = std::max<std::uint64_t>(m.previous_term, 1);
    for (std::uint64_t i = 0; fine && i < count; ++i) {
      EntryView entry;
      entry.term = number(before);
      before = entry.term;
      const auto type = in.get<std::uint32_t>();
      const auto bytes = in.get<std::uint32_t>();
      check(type >= 1 && type <= 3 && bytes >= 1 && bytes <= kMaxPayload && entry.term <= m.term);
      if (!fine) break;
      entry.type = static_cast<EntryType>(type);
      entry.payload = in.bytes(bytes);
      check(in.ok() && (entry.type != EntryType::kChange || decode_change(entry.payload)));
      m.entries.push_back(entry);
    }
    return m;
  }
  AppendResult append_result() {
    AppendResult m;
    m.term = number(1);
    m.rejected = number();
    m.last_index = number();
    return m;
  }
  RequestVote request_vote() {
    RequestVote m;
    m.term = number(1);
    m.candidate = number(1);
    position(m.last_index, m.last_term, m.term);
    m.disrupt_leader = flag();
    m.pre_vote = flag();
    return m;
  }
  VoteResult vote_result() {
    VoteResult m;
    m.term = number(1);
    m.granted = flag();
    m.pre_vote = in.get<std::uint8_t>();
    check(m.pre_vote <= 2);
    return m;
  }
  InstallSnapshot install_snapshot() {
    InstallSnapshot m;
    m.term = number(1);
    position(m.last_index, m.last_term, m.term);
    m.servers_index = number(1);
    check(m.last_index >= 1 && m.servers_index <= m.last_index);
    const auto count = in.get<std::uint64_t>();
    check(count >= 1 && count <= kMaxServers);
    for (std::uint64_t i = 0; fine && i < count; ++i) {
      Server server;
      server.id = number(1);
      server.role = role();
      check(std::none_of(m.servers.begin(), m.servers.end(),
                         [&](const Server& other) { return other.id == server.id; }));
      m.servers.push_back(server);
    }
    m.data = in.bytes(in.left());
    check(!m.data.empty());
    return m;
  }
  TimeoutNow timeout_now() {
    TimeoutNow m;
    m.term = number(1);
    position(m.last_index, m.last_term, m.term);
    return m;
  }
};

}  // namespace

std::size_t wire_size(const EntryView& entry) { return kEntryHeader + entry.payload.size(); }

std::string address_of(std::uint64_t id) { return std::to_string(id - 1); }

Bytes encode(const Message& message) {
  Bytes bytes;
  bytes.reserve(256);
  ByteWriter out(bytes);
  out.put(kWireVersion);
  out.put(static_cast<std::uint8_t>(message.index() + 1));
  out.put(std::uint16_t{0});
  out.put(std::uint32_t{0});
  std::visit(FieldWriter{out}, message);
  for (std::size_t i = 0; i < 4; ++i)
    bytes[4 + i] = static_cast<std::byte>(bytes.size() >> (8 * i));
  return bytes;
}

std::optional<Message> decode(ByteView bytes) {
  FieldReader fields{ByteReader(bytes)};
  fields.check(fields.in.get<std::uint8_t>() == kWireVersion);
  const auto type = fields.in.get<std::uint8_t>();
  fields.check(fields.in.get<std::uint16_t>() == 0);
  fields.check(fields.in.get<std::uint32_t>() == bytes.size());
  if (!fields.fine || !fields.in.ok()) return std::nullopt;
  Message message;
  switch (type) {
    case 1:
      message = fields.append_entries();
      break;
    case 2:
      message = fields.append_result();
      break;
    case 3:
      message = fields.request_vote();
      break;
    case 4:
      message = fields.vote_result();
      break;
    case 5:
      message = fields.install_snapshot();
      break;
    case 6:
      message = fields.timeout_now();
      break;
    default:
      return std::nullopt;
  }
  if (!fields.fine || !fields.in.done()) return std::nullopt;
  return message;
}

std::optional<Servers> decode_change(ByteView payload) {
  FieldReader fields{ByteReader(payload)};
  fields.check(fields.in.get<std::uint8_t>() == 1);
  const auto count = fields.in.get<std::uint64_t>();
  fields.check(count >= 1 && count <= kMaxServers);
  Servers servers;
  for (std::uint64_t i = 0; fields.fine && i < count; ++i) {
    Server server;
    server.id = fields.number(1);
    if (!fields.fine) break;
    for (const char c : address_of(server.id))
      fields.check(fields.in.get<std::uint8_t>() == static_cast<std::uint8_t>(c));
    fields.check(fields.in.get<std::uint8_t>() == 0);
    server.role = fields.role();
    fields.check(std::none_of(servers.begin(), servers.end(),
                              [&](const Server& other) { return other.id == server.id; }));
    servers.push_back(server);
  }
  // The library fills up to a multiple of 8 bytes.
  if (!fields.fine || !fields.in.ok() || fields.in.left() >= 8) return std::nullopt;
  return servers;
}

}  // namespace pyrdma::erpc::raft
