#include "systems/tailwind/recovery/find_log.h"

#include <algorithm>
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

}  // namespace pyrdma::tailwind
