// The set-up exchange in the session's segment is an append-only log with a hash index over it.
#pragma once
#include "fabric/fabric.h"
#include "fabric/shm/session_block.h"

namespace pyrdma::fabric::shm {

class Node;

class ShmRendezvous final : public Rendezvous {
 public:
  explicit ShmRendezvous(Node& node) : node_(node) {}
  /// Also throws Error(kExhausted) when the log is full.
  void publish(std::string_view key, std::span<const std::byte> value) override;
  std::optional<std::vector<std::byte>> find(std::string_view key) override;
  /// Also throws Error(kUnavailable), naming the dead nodes, when nodes have died and no node has
  /// published `key` in the half second since.
  std::vector<std::byte> await(std::string_view key, Time deadline) override;

 private:
  bool look_up(std::string_view key, std::vector<std::byte>& value) const;
  std::string dead_nodes() const;
  Node& node_;
};

}  // namespace pyrdma::fabric::shm
