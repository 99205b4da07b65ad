#include "systems/tailwind/recovery/find_log.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace pyrdma::tailwind {

FoundLog find_log(const std::vector<FoundReplica>& replicas, const KnownVersions& known) {
  FoundLog log;
  // The best replica of each segment stands last: a closed one, or the longest of the newest
  // version.
  std::vector<const FoundReplica*> usable;
  for (const FoundReplica& replica : replicas) {
    const auto least = known.find(replica.segment);
    const bool is_new = least == known.end() || replica.version >= least->second;
    if (replica.is_closed || (replica.digest && !replica.is_copy && is_new))
      usable.push_back(&replica);
  }
  const auto order = [](const FoundReplica* replica) {
    return std::tuple(replica->segment, replica->is_closed, replica->version, replica->valid);
  };
  std::ranges::sort(usable, std::less<>(), order);
  if (usable.empty()) {
    log.missing = "no backup has a replica that counts";
    return log;
  }
  const FoundReplica& head = *usable.back();
  if (head.is_closed) {
    log.missing = "segment " + std::to_string(head.segment) +
                  " is closed, so there is a newer one, and no backup has it";
    return log;
  }
  for (const std::uint64_t number : *head.digest) {
    const auto best =
        std::find_if(usable.rbegin(), usable.rend(),
                     [&](const FoundReplica* replica) { return replica->segment == number; });
    if (best == usable.rend()) {
      log.missing +=
          (log.missing.empty() ? "no backup has segment " : ", ") + std::to_string(number);
      continue;
    }
    FoundLog::Part& part = log.parts.emplace_back();
    part.segment = number;
    part.is_closed = (*best)->is_closed;
    part.valid = (*best)->valid;
    std::ranges::copy_if(
        usable, std::back_inserter(part.replicas), [&](const FoundReplica* replica) {
          return replica->segment == number && replica->valid >= part.valid &&
                 replica->is_closed == (*best)->is_closed && replica->version >= (*best)->version;
        });
  }
  return log;
}

FoundLog salvage_log(const std::vector<FoundReplica>& replicas) {
  const auto order = [](const FoundReplica& replica) {
    return std::tuple(replica.is_closed, !replica.is_copy, replica.version, replica.valid);
  };
  std::map<std::uint64_t, const FoundReplica*> best;
  std::set<std::uint64_t> missing;  // that a digest names, and nobody has
  for (const FoundReplica& replica : replicas) {
    if (replica.valid == 0) {  // damaged from its first bytes on
      missing.insert(replica.segment);
      continue;
    }
    const FoundReplica*& known = best[replica.segment];
    if (known == nullptr || order(*known) < order(replica)) known = &replica;
    if (replica.digest) missing.insert(replica.digest->begin(), replica.digest->end());
  }
  FoundLog log;
  for (const auto& [number, chosen] : best) {
    missing.erase(number);
    FoundLog::Part& part = log.parts.emplace_back();
    part.segment = number;
    part.is_closed = chosen->is_closed;
    part.valid = chosen->valid;
    for (const FoundReplica& replica : replicas)
      if (replica.segment == number && order(replica) == order(*chosen))
        part.replicas.push_back(&replica);
  }
  for (const std::uint64_t number : missing)
    log.lost += (log.lost.empty() ? "segments " : ", ") + std::to_string(number);
  const bool ends_open =
      !best.empty() && !best.rbegin()->second->is_closed && !best.rbegin()->second->is_copy;
  if (log.parts.empty())
    log.lost = "all segments";
  else if (!ends_open || log.lost.empty())
    log.lost += (log.lost.empty() ? "" : ", and ") + std::string("what came behind segment ") +
                std::to_string(log.parts.back().segment);
  return log;
}

}  // namespace pyrdma::tailwind
