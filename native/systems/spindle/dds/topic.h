// Topics of a domain, and the qualities of service (section 4.6).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "systems/spindle/shape.h"

namespace pyrdma::spindle::dds {

/// What a subscriber may rely on. Each level adds to the one before it.
enum class Qos : std::uint8_t {
  kUnordered,  // samples come on receipt, in the order of each publisher, and are dropped then
  kAtomic,     // all subscribers get the same samples in the same order, or none does
  kVolatile,   // subscribers keep the last samples in memory: one that joins catches up
  kLogged,     // subscribers also append each sample to a file
};
inline constexpr std::array<std::string_view, 4> kQosNames{"unordered", "atomic", "volatile",
                                                           "logged"};

struct Topic {
  std::string name;
  Qos qos = Qos::kAtomic;
  std::vector<NodeId> publishers, subscribers;
  std::uint32_t window = 100;         // samples of a publisher under way
  std::uint32_t max_sample = 10'240;  // bytes
  std::uint32_t history = 1'000;  // samples that a subscriber keeps in memory (volatile, logged)
  /// Logged: the file is synced after so many samples; 0: at the end of a view and at the close.
  std::uint32_t sync_every = 0;

  bool has_publisher(NodeId node) const;
  bool has_subscriber(NodeId node) const;
  /// The subgroup of a topic: just its participants.
  SubgroupSpec subgroup() const;
};

/// Throws Error(kInvalidArgument), naming topic, value and bound.
void check_topics(const std::vector<Topic>& topics);

}  // namespace pyrdma::spindle::dds
