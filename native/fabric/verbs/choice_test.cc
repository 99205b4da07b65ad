#include "fabric/verbs/choice.h"

#include <gtest/gtest.h>

#include "base/error_test.h"

namespace pyrdma::fabric::verbs {
namespace {

Candidate entry(const char* device, int gid_index, GidType type, const char* address,
                const char* interface) {
  Candidate candidate;
  candidate.device = device;
  candidate.gid_index = gid_index;
  candidate.type = type;
  candidate.address = address;
  const bool v4 = candidate.address.find(':') == std::string::npos;
  candidate.gid = v4 ? "::ffff:" + candidate.address : candidate.address;
  candidate.interface = interface;
  candidate.active = true;
  return candidate;
}

// Returns the GID table of a node of two NICs, in mlx5's order: v1 and v2 of IPv6, then of IPv4.
std::vector<Candidate> two_nics() {
  std::vector<Candidate> all;
  for (const char* device : {"mlx5_0", "mlx5_2"}) {
    const bool login = device[5] == '0';
    const char* interface = login ? "eno1" : "ens1";
    const char* v4 = login ? "128.105.144.1" : "10.10.1.1";
    all.push_back(entry(device, 0, GidType::kRoceV1, "fe80::1", interface));
    all.push_back(entry(device, 1, GidType::kRoceV2, "fe80::1", interface));
    all.push_back(entry(device, 2, GidType::kRoceV1, v4, interface));
    all.push_back(entry(device, 3, GidType::kRoceV2, v4, interface));
    for (Candidate& candidate : all) candidate.login = candidate.interface == "eno1";
  }
  return all;
}

std::string refusal(const std::vector<Candidate>& candidates, const Wish& wish) {
  try {
    choose(candidates, wish);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    return error.what();
  }
  return "chosen";
}

TEST(VerbsChoice, TakesRoceV2OverIpv4OfTheExperimentsNetwork) {
  const Choice choice = choose(two_nics(), {});
  EXPECT_EQ(choice.device, "mlx5_2");
  EXPECT_EQ(choice.gid_index, 3);
  EXPECT_EQ(choice.address, "10.10.1.1");
  EXPECT_TRUE(names(choice.reason, {"mlx5_2", "3", "RoCE v2", "10.10.1.1"}));
}

TEST(VerbsChoice, AnAddressDecides) {
  Wish wish;
  wish.address = "10.10.1.1";
  EXPECT_EQ(choose(two_nics(), wish).gid_index, 3);
  wish.address = "10.10.1.9";
  EXPECT_TRUE(names(refusal(two_nics(), wish), {"10.10.1.9", "10.10.1.1"}));
}

TEST(VerbsChoice, TheLoginNetworkMustBeNamed) {
  Wish wish;
  wish.address = "128.105.144.1";
  EXPECT_TRUE(names(refusal(two_nics(), wish), {"128.105.144.1", "mlx5_0"}));
  wish.device = "mlx5_0";
  EXPECT_EQ(choose(two_nics(), wish).gid_index, 3);
}

TEST(VerbsChoice, AGidMayBeAskedFor) {
  Wish wish;
  wish.gid_index = 2;
  EXPECT_EQ(choose(two_nics(), wish).gid_index, 2);
  EXPECT_EQ(choose(two_nics(), wish).device, "mlx5_2");
  wish.gid_index = 7;
  EXPECT_TRUE(names(refusal(two_nics(), wish), {"7"}));
}

TEST(VerbsChoice, APortThatIsDownIsNotUsed) {
  std::vector<Candidate> all = two_nics();
  for (Candidate& candidate : all) candidate.active = false;
  EXPECT_TRUE(names(refusal(all, {}), {"mlx5_2"}));
}

TEST(VerbsChoice, WithoutADeviceItSaysHowToGetOne) {
  EXPECT_TRUE(names(refusal({}, {}), {"rdma_rxe"}));
}

TEST(VerbsChoice, InfiniBandNeedsNoAddress) {
  Candidate port = entry("mlx4_0", 0, GidType::kInfiniBand, "", "");
  port.gid = "fe80::2";
  EXPECT_EQ(choose({port}, {}).device, "mlx4_0");
}

TEST(VerbsChoice, OfRoceV1TakesThatOverIpv4) {
  std::vector<Candidate> v1;
  for (const Candidate& candidate : two_nics()) {
    if (candidate.type == GidType::kRoceV1 && !candidate.login) v1.push_back(candidate);
  }
  const Choice choice = choose(v1, {});
  EXPECT_EQ(choice.gid_index, 2);
  EXPECT_EQ(choice.type, GidType::kRoceV1);
}

TEST(VerbsChoice, ADeviceThatCannotBeUsedIsNamedWithTheReason) {
  Candidate broken;
  broken.device = "mlx5_0";
  broken.problem = "cannot be opened: Permission denied";
  const std::string said = refusal({broken}, {});
  EXPECT_TRUE(names(said, {"mlx5_0", broken.problem}));
  EXPECT_FALSE(names(said, {"rdma_rxe"})) << "there is a device";
  Wish by_name;
  by_name.device = "mlx5_0";
  EXPECT_NE(refusal({broken}, by_name), "chosen");
}

}  // namespace
}  // namespace pyrdma::fabric::verbs
