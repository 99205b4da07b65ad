// The receives of an inbox, which all its connections share.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "env/env.h"
#include "fabric/fabric.h"
#include "runtime/memory_pool.h"
#include "runtime/messages/parts.h"

namespace pyrdma::runtime::messages {

class Receives {
 public:
  /// `depth` receives; their completions name them by less than kDatagram.
  Receives(fabric::Device& device, fabric::ProtectionDomain& domain, MemoryPool& memory,
           std::uint32_t depth, std::uint32_t slot_bytes);
  fabric::SharedReceiveQueue& queue() { return *queue_; }
  /// Posts those that are free. Returns false if the queue takes some of them only later.
  bool post();
  /// Copies the message of a receive that has completed; returns nothing for a message without a
  /// header. The receive is free then.
  std::optional<Header> take(Env& env, const fabric::Completion& completion, std::string& data);
  /// A connection has ended, and its last completions have been taken. It may have lost a receive
  /// nevertheless: over shm a peer that dies within a copy takes it along. If the queue has a place
  /// too many, another receive is posted there.
  void replace_lost();

 private:
  struct Slot {
    const Slots* slots;
    std::uint64_t index;  // in `slots`
  };
  void add(std::uint32_t count);
  bool post_one();
  std::uint64_t posted() const { return all_.size() - free_.size(); }

  MemoryPool& memory_;
  const std::uint32_t depth_, slot_bytes_;
  std::unique_ptr<fabric::SharedReceiveQueue> queue_;
  std::vector<std::unique_ptr<Slots>> slots_;
  std::vector<Slot> all_;
  std::vector<std::uint64_t> free_;  // of all_
  std::uint64_t wanted_;             // to be posted: depth_, and what seems to be lost
};

}  // namespace pyrdma::runtime::messages
