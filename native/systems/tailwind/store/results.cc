#include "systems/tailwind/store/results.h"

#include <algorithm>
#include <cstring>
#include <mutex>

namespace pyrdma::tailwind {

std::optional<ResultContents> read_result(const Entry& entry) {
  ResultContents contents;
  if (entry.type() != EntryType::kResult || !entry.key().empty() ||
      entry.value().size() != sizeof contents)
    return std::nullopt;
  std::memcpy(&contents, entry.value().data(), sizeof contents);
  if (contents.status > StoreStatus::kBadRequest) return std::nullopt;
  return contents;
}

NewEntry result_entry(std::uint64_t client, std::uint64_t sequence,
                      const ResultContents& contents) {
  NewEntry entry;
  entry.header.type = EntryType::kResult;
  entry.header.table = client;
  entry.header.version = sequence;
  entry.value = std::as_bytes(std::span(&contents, 1));
  return entry;
}

Results::Begun Results::begin(const UpdateId& id, std::vector<Place>& dropped) {
  if (id.acked > id.sequence) return {State::kWrong, {}};
  const std::lock_guard lock(mutex_);
  Client& client = clients_[id.client];
  client.acked = std::max(client.acked, id.acked);
  auto& records = client.records;
  while (!records.empty() && records.begin()->first < client.acked) {
    if (records.begin()->second.place == 0) break;  // what is in progress stays
    dropped.push_back(records.begin()->second.place);
    records.erase(records.begin());
  }
  if (id.sequence < client.acked) return {State::kTooOld, {}};
  const auto [known, is_new] = records.try_emplace(id.sequence);
  if (is_new) return {State::kNew, {}};
  const Record& record = known->second;
  if (record.place == 0) return {State::kInProgress, {}};
  return {State::kDone, {record.contents.status, record.contents.version, record.position}};
}

void Results::complete(std::uint64_t client, std::uint64_t sequence, const ResultContents& contents,
                       Position position, Place place) {
  const std::lock_guard lock(mutex_);
  clients_[client].records[sequence] = {contents, position, place};
}

void Results::abandon(const UpdateId& id) {
  const std::lock_guard lock(mutex_);
  clients_[id.client].records.erase(id.sequence);
}

bool Results::wants(std::uint64_t client, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  const auto known = clients_.find(client);
  return known == clients_.end() ||
         (sequence >= known->second.acked && !known->second.records.contains(sequence));
}

void Results::forget(std::span<const HashRange> ranges, std::vector<Place>& dropped) {
  const std::lock_guard lock(mutex_);
  for (auto& [number, client] : clients_) {
    std::erase_if(client.records, [&](const auto& numbered) {
      const Record& record = numbered.second;
      const bool is_forgotten =
          record.place != 0 && std::ranges::any_of(ranges, [&](const HashRange& range) {
            return range.has(record.contents.table, record.contents.hash);
          });
      if (is_forgotten) dropped.push_back(record.place);
      return is_forgotten;
    });
  }
}

bool Results::is_at(std::uint64_t client, std::uint64_t sequence, Place place) {
  const std::lock_guard lock(mutex_);
  const Record* record = find(client, sequence);
  return record != nullptr && record->place == place;
}

bool Results::move(std::uint64_t client, std::uint64_t sequence, Place from, Place to) {
  const std::lock_guard lock(mutex_);
  Record* record = find(client, sequence);
  if (record == nullptr || record->place != from) return false;
  record->place = to;
  return true;
}

std::uint64_t Results::count() {
  const std::lock_guard lock(mutex_);
  std::uint64_t result = 0;
  for (const auto& [number, client] : clients_) result += client.records.size();
  return result;
}

Results::Record* Results::find(std::uint64_t client, std::uint64_t sequence) {
  const auto known = clients_.find(client);
  if (known == clients_.end()) return nullptr;
  const auto record = known->second.records.find(sequence);
  return record == known->second.records.end() ? nullptr : &record->second;
}

}  // namespace pyrdma::tailwind
