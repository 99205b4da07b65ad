// The work of the builder thread: connections that are being made, and what it is asked to do.
#pragma once
#include <cstdint>
#include <memory>

#include "systems/krcore/control/inquiries.h"
#include "systems/krcore/pool/physical_qp.h"
#include "systems/krcore/wire.h"

namespace pyrdma::krcore {

/// A piece of work of the builder thread.
struct Job {
  enum Kind : std::uint8_t { kAccept, kAcceptMeta, kMake, kRevive } kind;
  ControlMessage offer;
  std::uint32_t core = 0;
  NodeId node = 0;
  std::uint32_t number = 0;  // kRevive: of the queue pair, which may have gone meanwhile
  bool is_one_more = false;  // kMake: even if there is one
};

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

/// Tells whether a queue pair of the pool is the one that a message of its peer names.
inline bool is_between(PhysicalQp& qp, const ControlMessage& message) {
  return qp.peer() == message.from && qp.life == message.incarnation &&
         qp.qp().qp_num() == message.queue_pair.qp_num;
}

/// A meta server's end of a connection by which a node reads its tables.
struct MetaEnd {
  NodeId node = 0;
  std::uint64_t ticket = 0;
  std::uint32_t incarnation = 0;
  std::unique_ptr<fabric::CompletionQueue> completions;
  std::unique_ptr<fabric::QueuePair> qp;
};

}  // namespace pyrdma::krcore
