#include "systems/tailwind/rpc/messages.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <type_traits>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/rng.h"
#include "systems/tailwind/log/entry.h"

namespace pyrdma::tailwind {

namespace {

template <class M, class T>
concept MaybeConst = std::is_same_v<std::remove_const_t<M>, T>;

// The fields of each message in their order on the wire. A FieldWriter or a FieldReader takes them.

template <MaybeConst<ServerId> M, class Io>
void each_field(M& m, Io& io) {
  io(m.node, m.life);
}
template <MaybeConst<Position> M, class Io>
void each_field(M& m, Io& io) {
  io(m.segment, m.end);
}
template <MaybeConst<HashRange> M, class Io>
void each_field(M& m, Io& io) {
  io(m.table, m.first, m.last);
}
template <MaybeConst<Tablet> M, class Io>
void each_field(M& m, Io& io) {
  io(m.range, m.owner, m.since);
}
template <MaybeConst<ListedServer> M, class Io>
void each_field(M& m, Io& io) {
  io(m.id, m.state);
}
template <MaybeConst<ClusterView> M, class Io>
void each_field(M& m, Io& io) {
  io(m.epoch, m.servers, m.tablets);
}
template <MaybeConst<UpdateId> M, class Io>
void each_field(M& m, Io& io) {
  io(m.client, m.sequence, m.acked);
}
template <MaybeConst<ReplicaName> M, class Io>
void each_field(M& m, Io& io) {
  io(m.segment, m.attempt);
}
template <MaybeConst<OpenRequest> M, class Io>
void each_field(M& m, Io& io) {
  io(m.name, m.version, m.is_copy, m.is_written_by_cpu, m.data);
}
template <MaybeConst<fabric::RemoteRegion> M, class Io>
void each_field(M& m, Io& io) {
  io(m.addr, m.length, m.rkey, m.node);
}
template <MaybeConst<OpenAnswer> M, class Io>
void each_field(M& m, Io& io) {
  io(m.status, m.buffer);
}
template <MaybeConst<BackupWriteRequest> M, class Io>
void each_field(M& m, Io& io) {
  io(m.name, m.offset, m.data);
}
template <MaybeConst<SetVersionRequest> M, class Io>
void each_field(M& m, Io& io) {
  io(m.name, m.version);
}
template <MaybeConst<CloseRequest> M, class Io>
void each_field(M& m, Io& io) {
  io(m.name, m.end, m.checksum, m.entries);
}
template <MaybeConst<HeldReplica> M, class Io>
void each_field(M& m, Io& io) {
  io(m.segment, m.version, m.is_closed, m.is_copy, m.valid, m.entries, m.digest);
}
template <MaybeConst<Inventory> M, class Io>
void each_field(M& m, Io& io) {
  io(m.replicas, m.may_have_more, m.room);
}
template <MaybeConst<RecoverRequest::Part> M, class Io>
void each_field(M& m, Io& io) {
  io(m.segment, m.valid, m.backups);
}
template <MaybeConst<RecoverRequest> M, class Io>
void each_field(M& m, Io& io) {
  io(m.dead, m.tablets, m.parts);
}
template <MaybeConst<RecoverAnswer> M, class Io>
void each_field(M& m, Io& io) {
  io(m.is_done, m.since, m.objects, m.bytes, m.lost_segment);
}
template <MaybeConst<ReadReplicaRequest> M, class Io>
void each_field(M& m, Io& io) {
  io(m.dead, m.segment, m.valid, m.from, m.tablets);
}
template <MaybeConst<ReadReplicaAnswer> M, class Io>
void each_field(M& m, Io& io) {
  io(m.status, m.next, m.entries);
}
template <MaybeConst<StoreRequest> M, class Io>
void each_field(M& m, Io& io) {
  io(m.table, m.id, m.key, m.value);
}
template <MaybeConst<StoreAnswer> M, class Io>
void each_field(M& m, Io& io) {
  io(m.status, m.version, m.value);
}

// Values that a type can hold and a sound sender never sends. Overloads of is_sound() are for whole
// fields; all other fields may have any value.

template <class T>
bool is_sound(const T&) {
  return true;
}
bool is_sound(ServerState state) { return state <= ServerState::kDead; }
bool is_sound(BackupStatus status) { return status <= BackupStatus::kRefused; }
bool is_sound(StoreStatus status) { return status <= StoreStatus::kBadRequest; }
bool is_sound(const HashRange& range) { return range.first <= range.last; }
/// Position::word() has room for it.
bool is_sound(const Position& position) {
  return position.segment < std::uint64_t{1} << 40 && position.end < 1U << 24;
}
bool is_sound(const StoreRequest& request) {
  return request.key.size() <= kMostKey && request.value.size() <= kMostValue;
}
bool is_sound(const StoreAnswer& answer) { return answer.value.size() <= kMostValue; }
/// Servers ascend, so none is there twice. Tablets ascend and do not overlap, as find() needs.
bool is_sound(const ClusterView& view) {
  for (std::size_t i = 1; i < view.servers.size(); ++i) {
    if (!(view.servers[i - 1].id < view.servers[i].id)) return false;
  }
  for (std::size_t i = 1; i < view.tablets.size(); ++i) {
    const HashRange &before = view.tablets[i - 1].range, &range = view.tablets[i].range;
    if (std::tie(before.table, before.last) >= std::tie(range.table, range.first)) return false;
  }
  return true;
}

class FieldWriter {
 public:
  explicit FieldWriter(ByteWriter& out) : out_(out) {}
  template <class... Fields>
  void operator()(const Fields&... fields) {
    (put(fields), ...);
  }

 private:
  template <class T>
  void put(const T& field) {
    PYRDMA_ASSERT(is_sound(field));
    if constexpr (std::is_same_v<T, bool>) {
      out_.put(static_cast<std::uint8_t>(field));
    } else if constexpr (std::is_enum_v<T>) {
      out_.put(static_cast<std::underlying_type_t<T>>(field));
    } else if constexpr (std::is_integral_v<T>) {
      out_.put(field);
    } else {
      each_field(field, *this);
    }
  }
  void put(const ByteView& bytes) {
    put_count(bytes.size());
    out_.put(bytes);
  }
  template <class T>
  void put(const std::vector<T>& elements) {
    put_count(elements.size());
    for (const T& element : elements) put(element);
  }
  template <class T>
  void put(const std::optional<T>& field) {
    put(field.has_value());
    if (field) put(*field);
  }
  void put_count(std::size_t count) {
    PYRDMA_CHECK(count, <=, std::numeric_limits<std::uint32_t>::max());
    out_.put(static_cast<std::uint32_t>(count));
  }
  ByteWriter& out_;
};

class FieldReader {
 public:
  explicit FieldReader(ByteReader& in) : in_(in) {}
  template <class... Fields>
  void operator()(Fields&... fields) {
    (get(fields), ...);
  }
  /// No field was out of its bounds, and no byte is missing.
  bool is_fine() const { return is_fine_ && in_.ok(); }

 private:
  template <class T>
  void get(T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      const auto value = in_.get<std::uint8_t>();
      check(value <= 1);
      field = value == 1;
    } else if constexpr (std::is_enum_v<T>) {
      field = static_cast<T>(in_.get<std::underlying_type_t<T>>());
    } else if constexpr (std::is_integral_v<T>) {
      field = in_.get<T>();
    } else {
      each_field(field, *this);
    }
    check(is_sound(field));
  }
  void get(ByteView& bytes) { bytes = in_.bytes(in_.get<std::uint32_t>()); }
  template <class T>
  void get(std::vector<T>& elements) {
    const auto count = in_.get<std::uint32_t>();
    check(count <= in_.left());  // an element has one byte at least
    // The vector grows with the elements that are there: the count alone takes no memory.
    for (std::uint32_t i = 0; i < count && is_fine(); ++i) get(elements.emplace_back());
  }
  template <class T>
  void get(std::optional<T>& field) {
    bool is_there = false;
    get(is_there);
    if (is_there) get(field.emplace());
  }
  void check(bool condition) { is_fine_ = is_fine_ && condition; }
  ByteReader& in_;
  bool is_fine_ = true;
};

template <class M>
void put_message(const M& message, ByteWriter& out) {
  FieldWriter writer(out);
  writer(message);
}

/// The message is the rest of a payload.
template <class M>
std::optional<M> get_message(ByteReader& in) {
  std::optional<M> message(std::in_place);
  FieldReader reader(in);
  reader(*message);
  if (!reader.is_fine() || !in.done()) message.reset();
  return message;
}

}  // namespace

const Tablet* ClusterView::find(std::uint64_t table, std::uint64_t hash) const {
  const auto after = std::upper_bound(tablets.begin(), tablets.end(), std::tie(table, hash),
                                      [](const auto& key, const Tablet& t) {
                                        return key < std::tie(t.range.table, t.range.first);
                                      });
  if (after == tablets.begin()) return nullptr;
  const Tablet& tablet = *std::prev(after);
  return tablet.range.has(table, hash) ? &tablet : nullptr;
}

bool ClusterView::is_up(ServerId id) const {
  return std::ranges::find(servers, ListedServer{id, ServerState::kUp}) != servers.end();
}

std::vector<ServerId> gone(const ClusterView& before, const ClusterView& now) {
  std::vector<ServerId> lives;
  for (const ListedServer& server : before.servers) {
    if (!std::ranges::binary_search(now.servers, server.id, {}, &ListedServer::id))
      lives.push_back(server.id);
  }
  return lives;
}

std::uint64_t key_hash(std::uint64_t table, ByteView key) { return checksum(key, mix64(table)); }

void ClusterView::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<ClusterView> ClusterView::get(ByteReader& in) { return get_message<ClusterView>(in); }

void ReplicaName::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<ReplicaName> ReplicaName::get(ByteReader& in) { return get_message<ReplicaName>(in); }

void OpenRequest::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<OpenRequest> OpenRequest::get(ByteReader& in) { return get_message<OpenRequest>(in); }

void OpenAnswer::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<OpenAnswer> OpenAnswer::get(ByteReader& in) { return get_message<OpenAnswer>(in); }

void BackupWriteRequest::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<BackupWriteRequest> BackupWriteRequest::get(ByteReader& in) {
  return get_message<BackupWriteRequest>(in);
}

void SetVersionRequest::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<SetVersionRequest> SetVersionRequest::get(ByteReader& in) {
  return get_message<SetVersionRequest>(in);
}

void CloseRequest::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<CloseRequest> CloseRequest::get(ByteReader& in) {
  return get_message<CloseRequest>(in);
}

void Inventory::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<Inventory> Inventory::get(ByteReader& in) { return get_message<Inventory>(in); }

void RecoverRequest::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<RecoverRequest> RecoverRequest::get(ByteReader& in) {
  return get_message<RecoverRequest>(in);
}

void RecoverAnswer::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<RecoverAnswer> RecoverAnswer::get(ByteReader& in) {
  return get_message<RecoverAnswer>(in);
}

void ReadReplicaRequest::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<ReadReplicaRequest> ReadReplicaRequest::get(ByteReader& in) {
  return get_message<ReadReplicaRequest>(in);
}

void ReadReplicaAnswer::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<ReadReplicaAnswer> ReadReplicaAnswer::get(ByteReader& in) {
  return get_message<ReadReplicaAnswer>(in);
}

void StoreRequest::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<StoreRequest> StoreRequest::get(ByteReader& in) {
  return get_message<StoreRequest>(in);
}

void StoreAnswer::put(ByteWriter& out) const { put_message(*this, out); }
std::optional<StoreAnswer> StoreAnswer::get(ByteReader& in) { return get_message<StoreAnswer>(in); }

}  // namespace pyrdma::tailwind
