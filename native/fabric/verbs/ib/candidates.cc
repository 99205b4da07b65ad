// Finds the RDMA devices of this machine: libibverbs gives the tables, sysfs the interfaces behind
// them.
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "fabric/verbs/choice.h"
#include "fabric/verbs/ib/library.h"
#include "fabric/verbs/ib/translate.h"
#include "fabric/verbs/ib/trial.h"
#include "fabric/verbs/interfaces.h"

namespace pyrdma::fabric::verbs {
namespace {

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string to_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

bool is_ipv4(const ibv_gid& gid) {
  static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

std::string address_of(const ibv_gid& gid, GidType type) {
  if (is_ipv4(gid)) {
    char text[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, gid.raw + 12, text, sizeof text);
    return text;
  }
  return type == GidType::kInfiniBand ? "" : to_text(gid);
}

/// Returns false for an empty entry.
bool read_gid(ibv_context* context, std::uint8_t port, int index, const std::string& sysfs,
              bool ethernet, ibv_gid* gid, GidType* type) {
  const Library& ib = Library::get();
  *type = ethernet ? GidType::kRoceV1 : GidType::kInfiniBand;
  ibv_gid_entry entry{};
  if (ib.query_gid_ex != nullptr) {
    if (ib.query_gid_ex(context, port, static_cast<std::uint32_t>(index), &entry, 0,
                        sizeof entry) != 0) {
      return false;
    }
    *gid = entry.gid;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) *type = GidType::kRoceV2;
  } else {
    if (ib.query_gid(context, port, index, gid) != 0) return false;
    const std::string text = read_line(sysfs + "/gid_attrs/types/" + std::to_string(index));
    if (text.find("v2") != std::string::npos) *type = GidType::kRoceV2;
  }
  static constexpr std::uint8_t kNone[16] = {};
  return std::memcmp(gid->raw, kNone, sizeof kNone) != 0;
}

void add_port(ibv_context* context, Candidate found, const std::set<std::string>& login,
              std::vector<Candidate>* all) {
  ibv_port_attr port{};
  if (Library::get().query_port(context, static_cast<std::uint8_t>(found.port),
                                reinterpret_cast<_compat_ibv_port_attr*>(&port)) != 0) {
    return;
  }
  found.active = port.state == IBV_PORT_ACTIVE;
  found.mtu = bytes_of(port.active_mtu);
  const std::string sysfs =
      "/sys/class/infiniband/" + found.device + "/ports/" + std::to_string(found.port);
  std::string ipoib, ipoib_address;
  if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) {
    ipoib = ipoib_interface(found.device, found.port);
    const std::vector<std::string> addresses = addresses_of(ipoib);
    if (!addresses.empty()) ipoib_address = addresses.front();
  }
  const std::size_t first = all->size();
  for (int index = 0; index < port.gid_tbl_len; ++index) {
    ibv_gid gid{};
    if (!read_gid(context, static_cast<std::uint8_t>(found.port), index, sysfs,
                  port.link_layer == IBV_LINK_LAYER_ETHERNET, &gid, &found.type)) {
      continue;
    }
    found.gid_index = index;
    found.gid = to_text(gid);
    if (found.type == GidType::kInfiniBand) {
      found.address = ipoib_address;
      found.interface = ipoib;
    } else {
      found.address = address_of(gid, found.type);
      found.interface = read_line(sysfs + "/gid_attrs/ndevs/" + std::to_string(index));
    }
    all->push_back(found);
  }
  // One login interface is enough, because its VLANs, for example, share the port.
  const auto begin = all->begin() + static_cast<std::ptrdiff_t>(first);
  const bool is_login = std::any_of(
      begin, all->end(), [&](const Candidate& c) { return login.count(c.interface) != 0; });
  for (auto entry = begin; entry != all->end(); ++entry) entry->login = is_login;
}

Candidate unusable(const std::string& device, const std::string& problem) {
  Candidate candidate;
  candidate.device = device;
  candidate.problem = problem;
  return candidate;
}

// An error that has another cause than the device shows itself again when the device is opened.
std::string problem_of(const Library& ib, ibv_context* context) {
  try {
    return lacking(Trial(ib, context));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

bool has_provider() { return true; }

std::string provider_problem() { return library_problem(); }

std::vector<Candidate> find_candidates() {
  const Library& ib = Library::get();
  const std::set<std::string> login = login_interfaces();
  std::vector<Candidate> all;
  std::set<std::string> listed;
  int count = 0;
  ibv_device** devices = (ib.get_device_list)(&count);
  for (int i = 0; i < count; ++i) {
    const std::string name = ib.get_device_name(devices[i]);
    listed.insert(name);
    if (devices[i]->transport_type == IBV_TRANSPORT_IWARP) {
      all.push_back(unusable(name, "iWARP, which this fabric does not support"));
      continue;
    }
    ibv_context* context = ib.open_device(devices[i]);
    if (context == nullptr) {
      all.push_back(unusable(name, std::string("cannot be opened: ") + std::strerror(errno) +
                                       "; let this user read and write /dev/infiniband/uverbs*"));
      continue;
    }
    ibv_device_attr attributes{};
    const std::string problem = problem_of(ib, context);
    if (!problem.empty()) {
      all.push_back(unusable(name, problem));
    } else if (ib.query_device(context, &attributes) == 0) {
      Candidate found;
      found.device = name;
      found.firmware = attributes.fw_ver;
      for (found.port = 1; found.port <= attributes.phys_port_cnt; ++found.port)
        add_port(context, found, login, &all);
    }
    ib.close_device(context);
  }
  if (devices != nullptr) ib.free_device_list(devices);
  for (const std::string& name : kernel_devices()) {
    if (listed.count(name) == 0) {
      all.push_back(
          unusable(name,
                   "known to the kernel but not to libibverbs: modprobe ib_uverbs, and apt "
                   "install ibverbs-providers"));
    }
  }
  return all;
}

}  // namespace pyrdma::fabric::verbs
