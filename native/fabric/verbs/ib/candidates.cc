// What RDMA devices are here: libibverbs for the tables, sysfs for the interfaces behind them.
#include <arpa/inet.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "fabric/verbs/choice.h"
#include "fabric/verbs/ib/library.h"
#include "fabric/verbs/ib/translate.h"

namespace pyrdma::fabric::verbs {
namespace {

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The interface of the default route: people are logged in through it.
std::string login_interface() {
  std::ifstream routes("/proc/net/route");
  std::string line;
  std::getline(routes, line);  // heads
  while (std::getline(routes, line)) {
    std::istringstream fields(line);
    std::string interface, destination;
    if (fields >> interface >> destination && destination == "00000000") return interface;
  }
  return "";
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

/// False where the entry is empty.
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

void add_port(ibv_context* context, Candidate found, const std::string& login,
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
  for (int index = 0; index < port.gid_tbl_len; ++index) {
    ibv_gid gid{};
    if (!read_gid(context, static_cast<std::uint8_t>(found.port), index, sysfs,
                  port.link_layer == IBV_LINK_LAYER_ETHERNET, &gid, &found.type)) {
      continue;
    }
    found.gid_index = index;
    found.gid = to_text(gid);
    found.address = address_of(gid, found.type);
    found.interface = read_line(sysfs + "/gid_attrs/ndevs/" + std::to_string(index));
    found.login = !login.empty() && found.interface == login;
    all->push_back(found);
  }
}

}  // namespace

std::string provider_problem() { return library_problem(); }

std::vector<Candidate> find_candidates() {
  const Library& ib = Library::get();
  const std::string login = login_interface();
  std::vector<Candidate> all;
  int count = 0;
  ibv_device** devices = (ib.get_device_list)(&count);
  for (int i = 0; i < count; ++i) {
    ibv_context* context = ib.open_device(devices[i]);
    if (context == nullptr) continue;  // its driver or a right is missing
    ibv_device_attr attributes{};
    if (ib.query_device(context, &attributes) == 0) {
      Candidate found;
      found.device = ib.get_device_name(devices[i]);
      found.firmware = attributes.fw_ver;
      for (found.port = 1; found.port <= attributes.phys_port_cnt; ++found.port)
        add_port(context, found, login, &all);
    }
    ib.close_device(context);
  }
  if (devices != nullptr) ib.free_device_list(devices);
  return all;
}

}  // namespace pyrdma::fabric::verbs
