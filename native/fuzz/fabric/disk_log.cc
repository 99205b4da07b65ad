#include "fuzz/fabric/disk_log.h"

#include <algorithm>

namespace pyrdma::fuzz {
namespace {

constexpr std::size_t kEntry = 64;
constexpr std::uint32_t kLogRecord = 0xe0;
constexpr std::size_t kSyncEvery = 2, kReadEvery = 3;

}  // namespace

DiskLog::DiskLog(Node& node) : node_(node), world_(node.world), state_(node.world.nodes[node.id]) {
  file_ = node_.env.storage().open("log");
  node_.env.storage().sync();  // makes a created file durable
  if (node_.incarnation == 0) return;
  if (state_.log_synced > 0) world_.outcome.made("log after a crash");
  state_.log_next = std::min(state_.log_synced, read_all());
}

void DiskLog::finish() {
  if (!state_.log.empty()) world_.outcome.made("log");
  read_all();
}

void DiskLog::judge(std::size_t at, std::span<const std::byte> entry, bool must_be_there) {
  const Versions found = read_stamps(entry.data(), kEntry, {node_.id, kLogRecord, 0});
  const bool spoils = world_.happened(Fault::disk_rot) ||
                      world_.happened(Fault::disk_misdirected) ||
                      world_.happened(Fault::disk_lies) || world_.happened(Fault::disk_torn) ||
                      world_.happened(Fault::disk_io_error);
  const bool whole = found.least == found.most && found.most != kNoVersion && found.most > 0;
  const auto where = [&] {
    return "node " + std::to_string(node_.id) + ", log entry " + std::to_string(at);
  };
  if (!whole) {
    const bool may_tear = spoils || world_.happened(Fault::disk_unreadable) || !must_be_there;
    if (!may_tear) world_.violation("log", where() + " was synced, but is missing");
    return;
  }
  const auto& written = state_.log[at];
  if (std::find(written.begin(), written.end(), found.least) == written.end() &&
      !world_.happened(Fault::disk_misdirected))
    world_.violation(
        "log", where() + ": version " + std::to_string(found.least) + " was never written there");
  if (must_be_there && found.least != written.back() && !spoils)
    world_.violation("log", where() + ": version " + std::to_string(found.least) +
                                " is there instead of " + std::to_string(written.back()));
}

std::size_t DiskLog::read_all() {
  std::size_t whole = 0;
  for (std::size_t at = 0; at < state_.log.size(); ++at) {
    std::array<std::byte, kEntry> entry{};
    try {
      if (file_->read(at * kEntry, entry) < kEntry && at < state_.log_synced)
        judge(at, entry, true);
    } catch (const Error& error) {  // the disk cannot read the sector
      if (!world_.happened(Fault::disk_unreadable) && !world_.happened(Fault::disk_io_error))
        world_.violation("log", std::string("reading failed: ") + error.what());
      continue;
    }
    judge(at, entry, at < state_.log_synced);
    whole = at + 1;
  }
  return whole;
}

bool DiskLog::append() {
  const std::size_t at = state_.log_next;
  if (state_.log.size() <= at) state_.log.resize(at + 1);
  std::array<std::byte, kEntry> entry;
  const std::uint32_t version = ++state_.log_version;
  write_stamps(entry.data(), kEntry, {node_.id, kLogRecord, 0}, version);
  state_.log[at].push_back(version);
  try {
    file_->write(at * kEntry, entry);
    state_.log_next = at + 1;
    if (state_.log_next % kSyncEvery == 0) {
      file_->sync();
      state_.log_synced = state_.log_next;
    }
  } catch (const Error&) {  // the place may hold the old entry, this one, or parts of both
    state_.log_synced = std::min(state_.log_synced, at);
    return false;
  }
  if (version % kReadEvery != 0) return true;
  try {
    if (file_->read(at * kEntry, entry) == kEntry) judge(at, entry, true);
  } catch (const Error& error) {
    if (!world_.happened(Fault::disk_unreadable) && !world_.happened(Fault::disk_io_error))
      world_.violation("log", std::string("reading back failed: ") + error.what());
  }
  return true;
}

}  // namespace pyrdma::fuzz
