// A node of the Spindle scenario: its group, and the operations of its plan.
#pragma once
#include <map>
#include <memory>

#include "systems/spindle/fuzz/world.h"

namespace pyrdma::spindle::scenario {

class Node {
 public:
  Node(World& world, Env& env);
  /// Forms or joins the group, carries out the rest of the node's plan, and stays until the world
  /// is over.
  void run();

 private:
  void take(std::uint32_t subgroup, const Message& message);
  bool found();
  bool join();
  /// The node is a member; one that was excluded joins again. False: the world is over.
  bool be_member();
  void act(const Planned& op);
  void flush();
  bool send(std::uint32_t subgroup, std::uint32_t bytes);
  void send_copy(std::uint32_t subgroup, std::uint32_t bytes);
  /// Writes the next message, of the own life.
  void build(std::uint32_t subgroup, std::span<std::byte> message);
  void check_delivered(std::uint32_t subgroup);
  bool is_sender(std::uint32_t subgroup) const;
  void watch_end();
  void check_nulls();
  void wait(Time duration);
  void end_life();

  World& world_;
  Env& env_;
  Rng rng_;
  std::uint64_t view_ = 0;
  Member member_;  // of the life that goes on
  bool has_left_ = false;
  std::map<std::uint32_t, std::uint64_t> sent_;
  /// The last message that try_send() took: its number in the group, and in its stamp.
  struct Copy {
    std::uint64_t number = 0, stamp = 0;
  };
  std::map<std::uint32_t, Copy> copies_;  // by subgroup
  std::unique_ptr<Group> group_;
};

}  // namespace pyrdma::spindle::scenario
