#include "systems/krcore/vqp/taken_tickets.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "systems/krcore/vqp/vqp.h"

namespace pyrdma::krcore {
namespace {

TEST(KrcoreTakenTickets, AreThoseThatWereAdded) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed, 0, "tickets");
    TakenTickets tickets;
    std::set<std::uint64_t> added;
    std::uint64_t highest = 0;
    for (int i = 0; i < 500; ++i) {
      // Mostly the next one, sometimes one far ahead, sometimes one that was left out.
      const std::uint64_t draw = rng.below(10);
      const std::uint64_t ticket = draw < 6    ? highest + 1
                                   : draw == 6 ? highest + 1 + rng.below(20)
                                               : 1 + rng.below(highest + 1);
      highest = std::max(highest, ticket);
      EXPECT_TRUE(tickets.has_room_for(ticket));
      tickets.add(ticket);
      added.insert(ticket);
      const std::uint64_t looked_up = 1 + rng.below(highest + 5);
      EXPECT_EQ(tickets.contains(looked_up), added.contains(looked_up)) << looked_up;
    }
    for (std::uint64_t ticket = 1; ticket < highest + 5; ++ticket)
      EXPECT_EQ(tickets.contains(ticket), added.contains(ticket)) << ticket;
    for (std::uint64_t ticket = 1; ticket <= highest; ++ticket) tickets.add(ticket);
    EXPECT_EQ(tickets.gaps(), 0u);
  }
}

TEST(KrcoreTakenTickets, ASenderOfGapsFindsAnEnd) {
  TakenTickets tickets;
  std::uint64_t ticket = 2;
  for (; tickets.has_room_for(ticket); ticket += 2) tickets.add(ticket);
  EXPECT_EQ(tickets.gaps(), TakenTickets::kMostGaps);
  EXPECT_TRUE(tickets.has_room_for(ticket - 1)) << "the next one leaves no gap";
  EXPECT_FALSE(tickets.has_room_for(0));
}

// A place has one connection at a time. Its numbers go round.
TEST(KrcoreTakenTickets, ALaterConnectionOfAPlaceIsKnown) {
  const auto sender = [](std::uint32_t life, std::uint16_t generation, std::uint16_t epoch) {
    return Sender{1, life, VqpId{5, generation}.number(), epoch};
  };
  const Sender now = sender(1, 7, 3);
  for (const Sender& before :
       {sender(0, 9, 9), sender(1, 6, 9), sender(1, 7, 2), sender(1, 0xfff0, 3)}) {
    EXPECT_TRUE(before.is_before(now));
    EXPECT_FALSE(now.is_before(before));
    EXPECT_EQ(before.place(), now.place());
  }
  EXPECT_FALSE(now.is_before(now));
}

}  // namespace
}  // namespace pyrdma::krcore
