// Finds the network interfaces behind RDMA ports, from the files of the kernel. `root` is "" except
// in tests.
#pragma once
#include <set>
#include <string>
#include <vector>

namespace pyrdma::fabric::verbs {

/// Returns the interfaces by which people may be logged in: those of all default routes, IPv4 and
/// IPv6, and the interfaces below them (bonds, bridges, VLANs).
std::set<std::string> login_interfaces(const std::string& root = "");
/// Returns the IP-over-InfiniBand interface of a port (1 or more); empty when it has none.
std::string ipoib_interface(const std::string& device, int port, const std::string& root = "");
/// Returns the RDMA devices that the kernel knows.
std::vector<std::string> kernel_devices(const std::string& root = "");
/// Returns the addresses of an interface, IPv4 first.
std::vector<std::string> addresses_of(const std::string& interface);

}  // namespace pyrdma::fabric::verbs
