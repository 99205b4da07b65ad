// Chooses the device, port and GID of a node. The choice is a pure function of the candidates;
// finding the candidates needs libibverbs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace pyrdma::fabric::verbs {

/// Wish is a user's request for a device; empty and negative fields mean any.
struct Wish {
  std::string device;   // name, for example mlx5_0
  int port = 0;         // 0: any
  int gid_index = -1;   // -1: choose() decides
  std::string address;  // IPv4 or IPv6 address of this node on the experiment's network
};

enum class GidType : std::uint8_t { kInfiniBand, kRoceV1, kRoceV2 };
const char* to_string(GidType type);

/// Candidate is one entry of a port's GID table.
struct Candidate {
  std::string device;
  std::string firmware;
  int port = 1;
  bool active = false;
  int gid_index = 0;
  GidType type = GidType::kInfiniBand;
  std::string gid;        // as an IPv6 address
  std::string address;    // IPv4 where the GID stands for one, else `gid` on Ethernet, else empty
  std::string interface;  // network interface, if any
  bool login = false;     // a default route uses the port
  std::uint32_t mtu = 0;  // bytes of a packet
  std::string problem;    // the fault of an unusable device, which has this one entry only
};

struct Choice {
  std::string device;
  int port = 1;
  int gid_index = 0;
  std::string address;
  GidType type = GidType::kInfiniBand;
  std::string reason;  // the reason in words
};

/// Finds all candidates, in the order of the library. Throws Error(kUnavailable) when libibverbs is
/// absent.
std::vector<Candidate> find_candidates();

/// Returns the best candidate: RoCEv2 over IPv4, then over a routable IPv6, then InfiniBand, then
/// RoCEv2 link-local, then RoCEv1, over IPv4 first. With an address, it returns the entry of that
/// address. It takes a device on the login network only when `wish` names the device. Throws
/// Error(kUnavailable) that lists the candidates and why each does not fit.
Choice choose(const std::vector<Candidate>& candidates, const Wish& wish);

/// Returns whether this build has the provider for real NICs, which needs the headers of rdma-core.
bool has_provider();

/// Returns why this build and its libraries can open no device; empty when they can.
std::string provider_problem();

}  // namespace pyrdma::fabric::verbs
