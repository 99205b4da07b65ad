// A client of the KRCore scenario: it carries out its plan, and judges what comes back.
#pragma once
#include <map>
#include <span>

#include "base/checksum.h"
#include "systems/krcore/fuzz/world.h"

namespace pyrdma::krcore::scenario {

/// The begin of each message.
struct MessageStart {
  std::uint64_t stream = 0, number = 0;
  std::uint64_t sum = 0;  // of all but itself
};

inline std::uint64_t sum_of_body(const MessageStart& start, std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof start) return 0;
  return checksum(bytes.subspan(sizeof start), mix64(start.stream) ^ start.number ^ 1);
}

class Client {
 public:
  Client(World& world, Service& service, std::uint32_t number);
  void run();

 private:
  /// A queue pair to a node, with what its place there must hold.
  struct Link {
    Queue queue;
    std::uint64_t stream = 0;
    std::uint32_t life = 0;  // of the target
    std::uint32_t place = 0;
    std::uint64_t words[kWords] = {};
    bool has_failed = false;
  };
  void act(const Planned& op);
  bool reaches(NodeId target);
  Link* link_to(NodeId target);
  void drop(NodeId target);
  void failed(Link& link, NodeId target, fabric::Status status, const char* what);
  /// Posts and takes all completions. Returns the first status that is no success.
  fabric::Status carry_out(Link& link, NodeId target, std::span<fabric::WorkRequest> list);
  void writes(Link& link, const Planned& op);
  void add(Link& link, const Planned& op);
  void message(Link& link, const Planned& op);
  void malformed(Link& link, const Planned& op);
  void region();
  fabric::WorkRequest cell_request(const Link& link, NodeId target, fabric::Opcode opcode,
                                   std::uint32_t word, const fabric::Sge& sge) const;

  World& world_;
  Service& service_;
  Env& env_;
  const std::uint32_t number_;
  App app_;
  Registration memory_;
  std::uint64_t message_place_ = 0;
  std::map<NodeId, Link> links_;
  std::map<NodeId, std::uint32_t> generations_;
  std::uint64_t next_value_ = 1;
  std::uint64_t next_wr_id_ = 1;
};

}  // namespace pyrdma::krcore::scenario
