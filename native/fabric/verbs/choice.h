// Which device, port and GID a node uses. Choosing is a pure function of what is there; finding it
// needs libibverbs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace pyrdma::fabric::verbs {

/// What a user may ask for; empty and negative mean any.
struct Wish {
  std::string device;   // name, as mlx5_0
  int port = 0;         // 0: any
  int gid_index = -1;   // -1: by the rules of choose()
  std::string address;  // IPv4 or IPv6 of the experiment's network on this node
};

enum class GidType : std::uint8_t { kInfiniBand, kRoceV1, kRoceV2 };
const char* to_string(GidType type);

/// One entry of a port's GID table.
struct Candidate {
  std::string device;
  std::string firmware;
  int port = 1;
  bool active = false;
  int gid_index = 0;
  GidType type = GidType::kInfiniBand;
  std::string gid;        // as an IPv6 address
  std::string address;    // IPv4 where the GID stands for one, else `gid` on Ethernet, else empty
  std::string interface;  // network interface, where there is one
  bool login = false;     // a default route leads over its port
  std::uint32_t mtu = 0;  // bytes of the fabric's packets
  std::string problem;    // why a device cannot be used, which then has this one entry
};

struct Choice {
  std::string device;
  int port = 1;
  int gid_index = 0;
  std::string address;
  GidType type = GidType::kInfiniBand;
  std::string reason;  // in words
};

/// Everything that is there, in the order of the library. Throws Error(kUnavailable) when
/// libibverbs is not.
std::vector<Candidate> find_candidates();

/// The best candidate: RoCEv2 over IPv4, then over a routable IPv6, then InfiniBand, then RoCEv2
/// link-local, then RoCEv1, over IPv4 first; by an address, the entry that has it. A device on the
/// login network is taken only when named. Throws Error(kUnavailable) with what is there and why it
/// does not do.
Choice choose(const std::vector<Candidate>& candidates, const Wish& wish);

/// Whether this build has the provider for real NICs, which needs the headers of rdma-core.
bool has_provider();

/// Why no device can be opened here, as far as the build and the libraries are concerned; empty
/// when nothing is wrong.
std::string provider_problem();

}  // namespace pyrdma::fabric::verbs
