#include "fabric/verbs/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

namespace pyrdma::fabric::verbs {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code missing;
  for (fs::directory_iterator at(folder, missing), end; !missing && at != end;
       at.increment(missing))
    names.push_back(at->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

long number_in(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  return text.empty() ? -1 : std::strtol(text.c_str(), nullptr, 0);
}

void add_with_lower(const std::string& interface, const std::string& root,
                    std::set<std::string>* all) {
  if (!all->insert(interface).second) return;
  const std::string prefix = "lower_";
  for (const std::string& name : names_in(root + "/sys/class/net/" + interface)) {
    if (name.rfind(prefix, 0) == 0) add_with_lower(name.substr(prefix.size()), root, all);
  }
}

}  // namespace

std::set<std::string> login_interfaces(const std::string& root) {
  std::set<std::string> all;
  std::ifstream v4(root + "/proc/net/route");
  std::string line;
  std::getline(v4, line);  // the heading
  while (std::getline(v4, line)) {
    std::istringstream fields(line);
    std::string interface, destination, gateway, flags, skip, mask;
    if (fields >> interface >> destination >> gateway >> flags >> skip >> skip >> skip >> mask &&
        destination == "00000000" && mask == "00000000")
      add_with_lower(interface, root, &all);
  }
  std::ifstream v6(root + "/proc/net/ipv6_route");
  while (std::getline(v6, line)) {
    std::istringstream fields(line);
    std::string destination, prefix, skip, interface;
    unsigned long flags = 0;
    fields >> destination >> prefix;
    for (int i = 0; i < 6; ++i) fields >> skip;  // source, its prefix, next hop, metric, 2 counters
    if (fields >> std::hex >> flags >> interface && prefix == "00" && (flags & RTF_UP) != 0 &&
        (flags & RTF_REJECT) == 0 && interface != "lo" &&
        destination.find_first_not_of('0') == std::string::npos)
      add_with_lower(interface, root, &all);
  }
  return all;
}

std::string ipoib_interface(const std::string& device, int port, const std::string& root) {
  const std::string net = root + "/sys/class/net/";
  for (const std::string& name : names_in(net)) {
    const std::string here = net + name;
    std::error_code missing;
    if (number_in(here + "/type") == ARPHRD_INFINIBAND &&
        fs::exists(here + "/device/infiniband/" + device, missing) &&
        number_in(here + "/dev_port") == port - 1)
      return name;
  }
  return "";
}

std::vector<std::string> kernel_devices(const std::string& root) {
  return names_in(root + "/sys/class/infiniband");
}

std::vector<std::string> addresses_of(const std::string& interface) {
  ifaddrs* first = nullptr;
  if (interface.empty() || ::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, &::freeifaddrs);
  std::vector<std::string> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
      if (interface != at->ifa_name || at->ifa_addr == nullptr || at->ifa_addr->sa_family != family)
        continue;
      char text[INET6_ADDRSTRLEN] = {};
      const void* bytes = family == AF_INET
                              ? static_cast<const void*>(
                                    &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr)
                              : &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
      if (::inet_ntop(family, bytes, text, sizeof text) != nullptr) found.emplace_back(text);
    }
  }
  return found;
}

}  // namespace pyrdma::fabric::verbs
