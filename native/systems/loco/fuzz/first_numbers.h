// Numbers that count up, near the ends of their ranges in a quarter of the runs.
#pragma once
#include <cstdint>

#include "fuzz/scenario.h"
#include "systems/loco/kvstore/index.h"
#include "systems/loco/ticket_lock.h"

namespace pyrdma::loco {

struct FirstNumbers {
  explicit FirstNumbers(const fuzz::Options& options) {
    Rng rng(options.seed, -1, "fuzz loco first numbers");
    if (rng.below(4) != 0) return;
    lock_ticket = TicketLocks::kTickets - rng.below(40);
    queue_ticket = ~std::uint64_t{0} - rng.below(40);
    // The number in the head of a message has 32 bits and counts units of 16 bytes.
    const std::uint64_t end = rng.below(2) == 0 ? std::uint64_t{1} << 36 : 0;
    position = end - 16 * (1 + rng.below(100));
    barrier_round = ~std::uint64_t{0} - rng.below(3);
    slot_counter = kCounterMask - static_cast<std::uint32_t>(rng.below(4));
    place = ~std::uint32_t{0} - static_cast<std::uint32_t>(rng.below(40));
  }
  std::uint64_t lock_ticket = 0, queue_ticket = 0, position = 0, barrier_round = 0;
  std::uint32_t slot_counter = 1, place = 0;
};

}  // namespace pyrdma::loco
