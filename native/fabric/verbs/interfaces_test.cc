// Interfaces in the lists of an invented machine's kernel.
#include "fabric/verbs/interfaces.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace pyrdma::fabric::verbs {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

struct VerbsInterfaces : testing::Test {
  VerbsInterfaces() {
    std::string name = fs::temp_directory_path() / "pyrdma-interfaces.XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    root = name;
  }
  ~VerbsInterfaces() override { fs::remove_all(root); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  }
  void route(const std::string& interface, const std::string& destination,
             const std::string& mask) const {
    const std::string old = read("/proc/net/route");
    write("/proc/net/route", (old.empty() ? "Iface\tDestination\tGateway\n" : old) + interface +
                                 "\t" + destination + "\t010A0A0A\t0003\t0\t0\t0\t" + mask +
                                 "\t0\t0\t0\n");
  }
  std::string read(const std::string& path) const {
    std::ifstream file(root + path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void interface(const std::string& name, const std::string& type, const std::string& device,
                 const std::string& port) const {
    const std::string here = "/sys/class/net/" + name;
    write(here + "/type", type + "\n");
    write(here + "/dev_port", port + "\n");
    fs::create_directories(root + here + "/device/infiniband/" + device);
  }
  std::string root;
};

TEST_F(VerbsInterfaces, OnlyDefaultRoutesAreOfTheLogin) {
  EXPECT_EQ(login_interfaces(root), Names{}) << "no files, no routes";
  route("ens1f0", "000A0A0A", "00FFFFFF");
  route("eno1", "00000000", "00000000");
  route("ens2", "00000000", "00000080");  // half of all addresses, the route of some tunnels
  EXPECT_EQ(login_interfaces(root), Names{"eno1"});
  route("eno2", "00000000", "00000000");
  EXPECT_EQ(login_interfaces(root), (Names{"eno1", "eno2"}));
}

TEST_F(VerbsInterfaces, WhatLiesBelowABridgeABondOrAVlanCounts) {
  route("br0", "00000000", "00000000");
  write("/sys/class/net/br0/lower_bond0", "");
  write("/sys/class/net/bond0/lower_eno1", "");
  write("/sys/class/net/bond0/lower_eno2", "");
  write("/sys/class/net/eno2/upper_bond0", "");
  EXPECT_EQ(login_interfaces(root), (Names{"br0", "bond0", "eno1", "eno2"}));
}

TEST_F(VerbsInterfaces, Ipv6HasDefaultRoutesToo) {
  const std::string none = "00000000000000000000000000000000";
  const std::string rest = " 00 fe800000000000000000000000000001 00000400 00000001 00000000 ";
  write("/proc/net/ipv6_route",
        none + " 00 " + none + rest + "00000003 eno1\n" +      //
            none + " 00 " + none + rest + "00200200 lo\n" +    // unreachable
            none + " 00 " + none + rest + "00000000 ens3\n" +  // not up
            "fd000000000000000000000000000000 40 " + none + rest + "00000001 ens1\n");
  EXPECT_EQ(login_interfaces(root), Names{"eno1"});
}

TEST_F(VerbsInterfaces, APortOfInfiniBandHasItsInterface) {
  interface("eno1", "1", "mlx4_0", "0");
  interface("ib0", "32", "mlx4_0", "0");
  interface("ib1", "32", "mlx4_0", "1");
  interface("ib2", "32", "mlx4_1", "0");
  EXPECT_EQ(ipoib_interface("mlx4_0", 1, root), "ib0");
  EXPECT_EQ(ipoib_interface("mlx4_0", 2, root), "ib1");
  EXPECT_EQ(ipoib_interface("mlx4_1", 1, root), "ib2");
  EXPECT_EQ(ipoib_interface("mlx4_1", 2, root), "");
  EXPECT_EQ(ipoib_interface("mlx5_0", 1, root), "");
}

TEST_F(VerbsInterfaces, DevicesOfTheKernel) {
  EXPECT_TRUE(kernel_devices(root).empty());
  fs::create_directories(root + "/sys/class/infiniband/mlx5_1");
  fs::create_directories(root + "/sys/class/infiniband/mlx5_0");
  EXPECT_EQ(kernel_devices(root), (std::vector<std::string>{"mlx5_0", "mlx5_1"}));
}

TEST(VerbsAddresses, OfAnInterface) {
  EXPECT_TRUE(addresses_of("").empty());
  EXPECT_TRUE(addresses_of("no such interface").empty());
  const std::vector<std::string> loopback = addresses_of("lo");
  if (loopback.empty()) GTEST_SKIP() << "no loopback here";
  EXPECT_EQ(loopback.front(), "127.0.0.1");
}

}  // namespace
}  // namespace pyrdma::fabric::verbs
