#include "fabric/verbs/choice.h"

#include "base/error.h"

namespace pyrdma::fabric::verbs {
namespace {

bool is_ipv4(const Candidate& candidate) {
  return !candidate.address.empty() && candidate.address.find(':') == std::string::npos;
}

bool is_link_local(const Candidate& candidate) { return candidate.gid.rfind("fe80:", 0) == 0; }

/// A lower rank is better. RoCEv2 passes routers and switches; both ends must use one version.
int rank(const Candidate& candidate) {
  if (candidate.type == GidType::kRoceV2) {
    return is_ipv4(candidate) ? 0 : is_link_local(candidate) ? 3 : 1;
  }
  if (candidate.type == GidType::kInfiniBand) return 2;
  return is_ipv4(candidate) ? 4 : 5;
}

std::string describe(const Candidate& c) {
  if (!c.problem.empty()) return c.device + " (" + c.problem + ")";
  const char* down = c.type == GidType::kInfiniBand
                         ? ", port down, or no subnet manager runs (opensm)"
                         : ", port down";
  return c.device + " port " + std::to_string(c.port) + " GID " + std::to_string(c.gid_index) +
         " (" + to_string(c.type) + (c.address.empty() ? "" : ", " + c.address) +
         (c.interface.empty() ? "" : ", " + c.interface) + (c.active ? "" : down) +
         (c.login ? ", login network" : "") + ")";
}

bool fits(const Candidate& candidate, const Wish& wish) {
  return (wish.device.empty() || candidate.device == wish.device) &&
         (wish.port == 0 || candidate.port == wish.port) &&
         (wish.gid_index < 0 || candidate.gid_index == wish.gid_index) &&
         (wish.address.empty() || candidate.address == wish.address);
}

std::string describe(const Wish& wish) {
  std::string text;
  if (!wish.device.empty()) text += " device " + wish.device;
  if (wish.port != 0) text += " port " + std::to_string(wish.port);
  if (wish.gid_index >= 0) text += " GID " + std::to_string(wish.gid_index);
  if (!wish.address.empty()) text += " address " + wish.address;
  return text.empty() ? " any device" : text;
}

[[noreturn]] void throw_nothing(const std::vector<Candidate>& candidates, const Wish& wish) {
  if (candidates.empty()) {
    throw Error(
        ErrorCode::kUnavailable,
        "verbs: this machine has no RDMA device; make a software one: modprobe rdma_rxe, then "
        "rdma link add rxe0 type rxe netdev INTERFACE");
  }
  std::string text =
      "verbs: no device fits the request (" + describe(wish).substr(1) + "); the devices are: ";
  for (const Candidate& candidate : candidates) {
    text += (&candidate == &candidates.front() ? "" : "; ") + describe(candidate);
  }
  text +=
      "; bring a port up, or name a device; pyrdma uses a device on the login network only if you "
      "name it";
  throw Error(ErrorCode::kUnavailable, text);
}

}  // namespace

const char* to_string(GidType type) {
  switch (type) {
    case GidType::kInfiniBand:
      return "InfiniBand";
    case GidType::kRoceV1:
      return "RoCE v1";
    case GidType::kRoceV2:
      return "RoCE v2";
  }
  return "unknown";
}

Choice choose(const std::vector<Candidate>& candidates, const Wish& wish) {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates) {
    const bool named = !wish.device.empty();
    if (!candidate.problem.empty()) continue;
    if (!fits(candidate, wish) || !candidate.active || (candidate.login && !named)) continue;
    if (best == nullptr || rank(candidate) < rank(*best)) best = &candidate;
  }
  if (best == nullptr) throw_nothing(candidates, wish);
  Choice choice;
  choice.device = best->device;
  choice.port = best->port;
  choice.gid_index = best->gid_index;
  choice.address = best->address;
  choice.type = best->type;
  choice.reason = describe(*best) + ", chosen for" + describe(wish);
  return choice;
}

}  // namespace pyrdma::fabric::verbs
