#include "systems/erpc/raft/kv_state.h"

#include <algorithm>

#include "systems/erpc/scopes.h"

namespace pyrdma::erpc::raft {

namespace {

constexpr std::uint32_t kSnapshotMagic = 0x31564b52;  // "RKV1"

}  // namespace

KvAnswer KvState::apply(std::uint64_t index, ByteView bytes) {
  Scope step(env_, scope::raft_apply);
  const auto command = decode_command(bytes);
  if (!command) {
    env_.reached("erpc/raft/malformed_command");
    return {};
  }
  if (command->operation == KvOperation::kPut) return put(index, *command);
  KvAnswer answer = get(command->key);
  answer.sequence = command->sequence;
  return answer;
}

KvAnswer KvState::get(const Key& key) const {
  KvAnswer answer;
  answer.status = KvStatus::kDone;
  const auto at = places_.find(key);
  if (at == places_.end()) return answer;
  const Slot& slot = slots_[at->second];
  answer.found = true;
  answer.version = slot.version;
  answer.value = slot.value;
  return answer;
}

KvAnswer KvState::put(std::uint64_t index, const KvCommand& command) {
  KvAnswer answer;
  answer.status = KvStatus::kDone;
  answer.sequence = command.sequence;
  const auto known = sessions_.find(command.client);
  if (known == sessions_.end() && sessions_.size() >= options_.max_clients) {
    env_.reached("erpc/raft/too_many_clients");
    answer.status = KvStatus::kTooManyClients;
    return answer;
  }
  if (known != sessions_.end() && command.sequence <= known->second.sequence &&
      options_.bugs.asks_session()) {
    env_.reached("erpc/raft/repeated_put");
    ++repeated_;
    if (command.sequence < known->second.sequence) answer.status = KvStatus::kStale;
    answer.version = known->second.version;
    return answer;
  }
  const auto [place, fresh] = places_.try_emplace(command.key, slots_.size());
  if (fresh) slots_.push_back({command.key, {}, 0});
  Slot& slot = slots_[place->second];
  slot.value = command.value;
  answer.version = ++slot.version;
  sessions_[command.client] = {command.sequence, slot.version};
  if (options_.observer != nullptr)
    options_.observer->executed(env_.node(), index, command.client, command.sequence);
  return answer;
}

Bytes KvState::snapshot() const {
  std::vector<const Slot*> sorted;
  sorted.reserve(slots_.size());
  for (const Slot& slot : slots_) sorted.push_back(&slot);
  std::ranges::sort(sorted, {}, &Slot::key);
  const bool sessions = options_.bugs.keeps_sessions_in_snapshot();
  Bytes bytes;
  bytes.reserve(24 + slots_.size() * (kKeyBytes + 9 + kMaxValue) + sessions_.size() * 24);
  ByteWriter out(bytes);
  out.put(kSnapshotMagic);
  out.put(std::uint32_t{0});
  out.put(static_cast<std::uint64_t>(slots_.size()));
  out.put(static_cast<std::uint64_t>(sessions ? sessions_.size() : 0));
  for (const Slot* slot : sorted) {
    out.put(ByteView(slot->key));
    out.put(slot->version);
    out.put(slot->value.size);
    out.put(slot->value.view());
  }
  for (const auto& [client, session] : sessions_) {
    if (!sessions) break;
    out.put(client);
    out.put(session.sequence);
    out.put(session.version);
  }
  return bytes;
}

bool KvState::restore(ByteView snapshot) {
  ByteReader in(snapshot);
  const bool known = in.get<std::uint32_t>() == kSnapshotMagic && in.get<std::uint32_t>() == 0;
  const auto keys = in.get<std::uint64_t>();
  const auto clients = in.get<std::uint64_t>();
  constexpr std::size_t kLeastSlot = kKeyBytes + 9, kSession = 24;
  if (!known || keys > in.left() / kLeastSlot || clients > in.left() / kSession) return false;
  std::vector<Slot> slots;
  decltype(places_) places;
  slots.reserve(keys);
  places.reserve(keys);
  for (std::uint64_t i = 0; i < keys; ++i) {
    Slot slot;
    std::ranges::copy(in.bytes(kKeyBytes), slot.key.begin());
    slot.version = in.get<std::uint64_t>();
    const auto size = in.get<std::uint8_t>();
    if (size > kMaxValue) return false;
    slot.value = Value::of(in.bytes(size));
    if (!in.ok() || !places.emplace(slot.key, i).second) return false;
    slots.push_back(slot);
  }
  decltype(sessions_) sessions;
  for (std::uint64_t i = 0; i < clients; ++i) {
    const auto client = in.get<std::uint64_t>();
    const auto sequence = in.get<std::uint64_t>();
    if (!sessions.emplace(client, Session{sequence, in.get<std::uint64_t>()}).second) return false;
  }
  if (!in.done()) return false;
  slots_ = std::move(slots);
  places_ = std::move(places);
  sessions_ = std::move(sessions);
  return true;
}

}  // namespace pyrdma::erpc::raft
