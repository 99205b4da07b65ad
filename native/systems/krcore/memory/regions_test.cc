#include "systems/krcore/memory/regions.h"

#include <cstring>
#include <vector>

#include "base/error_test.h"
#include "systems/krcore/worlds_test.h"

namespace pyrdma::krcore {
namespace {

/// Registers and removes regions, of which 1,000 are there at a time. Returns how many of them no
/// peer can find.
std::uint64_t lost_regions(Env& env, Regions& regions, int count) {
  std::vector<Registration> held;
  Rng rng = env.rng("churn");
  std::uint64_t lost = 0;
  for (int i = 0; i < count; ++i) {
    if (held.size() >= 1000) {
      Registration& ended = held[rng.below(held.size())];
      regions.remove(ended.key);
      ended = held.back();
      held.pop_back();
      regions.free_ended(kForever);
    }
    held.push_back(regions.allocate(64, fabric::kAllAccess, 1));
    RegionRecord record;
    const auto found =
        look_up(regions.shape(), held.back().key, std::as_writable_bytes(std::span(&record, 1)),
                [&](std::uint64_t offset, std::span<std::byte> into) {
                  std::memcpy(into.data(),
                              reinterpret_cast<const std::byte*>(regions.table().addr + offset),
                              into.size());
                  return true;
                });
    lost += found != LookupResult::kFound || record.addr != held.back().addr ? 1 : 0;
  }
  return lost;
}

void with_regions(Bug bug, const std::function<void(Env&, Regions&)>& use) {
  fabric::sim::SimCluster cluster(runtime::sim_options(1));
  cluster.run([&](Env& env) {
    Options options;
    options.arena_bytes = 1 << 17;
    options.bugs = bug;
    env.device().open();
    const auto domain = env.device().create_protection_domain();
    Regions regions(env, *domain, options);
    use(env, regions);
  });
}

TEST(KrcoreRegions, PeersFindEachOne) {
  for (const Bug bug : {Bug::kNone, Bug::kFullTableIgnored}) {
    with_regions(bug, [&](Env& env, Regions& regions) {
      EXPECT_EQ(lost_regions(env, regions, 100'000) == 0, bug == Bug::kNone);
    });
  }
}

// A table without a place refuses the region, which leaves nothing.
TEST(KrcoreRegions, OneThatPeersCannotFindIsRefused) {
  with_regions(Bug::kBucketsKept, [&](Env& env, Regions& regions) {
    EXPECT_TRUE(refuses([&] { lost_regions(env, regions, 1'000'000); }, ErrorCode::kExhausted,
                        {"205", "1024", "Options::regions"}));
  });
}

}  // namespace
}  // namespace pyrdma::krcore
