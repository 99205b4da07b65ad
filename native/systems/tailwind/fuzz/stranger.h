// A node that sends datagrams of its own making to the nodes of a store: in another node's name,
// with addresses that cannot be, or with damaged fields.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/rng.h"
#include "env/env.h"
#include "fabric/fabric.h"
#include "systems/tailwind/options.h"
#include "systems/tailwind/rpc/hello.h"

namespace pyrdma::tailwind::scenario {

class Stranger {
 public:
  /// `name` is that of the store's run. Costs the NIC's time.
  Stranger(Env& env, std::string name);
  /// A sound knock of a node with the name `from`, with addresses of this node.
  Hello knock(ServerId from, ServerId to) const;
  /// A hello to `to` with something wrong.
  Hello draw(Rng& rng, const Options& options, ServerId to) const;
  /// Sends it, with its checksum, to where `to` takes datagrams; nothing if it has published no
  /// place. One thread at a time. Costs the rendezvous.
  void send(ServerId to, Hello hello);

 private:
  static constexpr std::uint32_t kSends = 16, kSlot = 256;
  Env& env_;
  const std::string name_;
  std::unique_ptr<fabric::ProtectionDomain> domain_;
  std::unique_ptr<fabric::CompletionQueue> completions_;
  std::unique_ptr<fabric::MemoryRegion> memory_;
  std::unique_ptr<fabric::QueuePair> qp_;
  std::array<std::unique_ptr<fabric::AddressHandle>, kSends> handles_;
  std::uint32_t next_ = 0, ended_ = 0;
};

}  // namespace pyrdma::tailwind::scenario
