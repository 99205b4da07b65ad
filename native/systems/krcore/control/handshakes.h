// Connections that are being made, of the builder thread.
#pragma once
#include <cstdint>
#include <memory>

#include "systems/krcore/control/inquiries.h"
#include "systems/krcore/pool/physical_qp.h"
#include "systems/krcore/wire.h"

namespace pyrdma::krcore {

/// A reliable connection that this node makes.
struct Making {
  std::uint32_t core = 0;
  NodeId node = 0;
  bool is_one_more = false;  // even if there is one
  bool is_confirming = false;
  std::unique_ptr<PhysicalQp> qp;
  std::unique_ptr<Inquiry> inquiry;  // null: it waits for room
};

/// A reliable connection that another node has offered.
struct AcceptedOffer {
  NodeId node = 0;
  std::uint32_t life = 0;  // of the node
  std::uint64_t ticket = 0;
  Time at = 0;
  ControlMessage answer;
  std::unique_ptr<PhysicalQp> qp;  // until it is confirmed
};

/// A meta server's end of a connection by which a node reads its tables.
struct MetaEnd {
  NodeId node = 0;
  std::uint64_t ticket = 0;
  std::uint32_t incarnation = 0;
  std::unique_ptr<fabric::CompletionQueue> completions;
  std::unique_ptr<fabric::QueuePair> qp;
};

}  // namespace pyrdma::krcore
