// A region of one size on every participant, which all participants reach by offset (paper, section
// 5.1.1). The region orders and protects nothing: use it under a lock, or with one writer.
#pragma once
#include "systems/loco/channel.h"

namespace pyrdma::loco {

inline constexpr std::uint32_t kReadWrite = fabric::kRemoteRead | fabric::kRemoteWrite;

class SharedRegion : public Channel {
 public:
  /// `peers` are the rights of the other participants, an or of fabric::kRemoteRead, kRemoteWrite
  /// and kRemoteAtomic.
  SharedRegion(Manager& manager, std::string name, std::uint64_t bytes, std::uint32_t peers,
               std::vector<NodeId> participants = {}, Placement placement = Placement::kHost)
      : Channel(manager, std::move(name), std::move(participants)) {
    make(bytes, peers, placement);
  }
  SharedRegion(Channel& parent, std::string_view name, std::uint64_t bytes, std::uint32_t peers,
               Placement placement = Placement::kHost)
      : Channel(parent, name) {
    make(bytes, peers, placement);
  }

  /// Returns this node's part. Peers change it at any time: read words with load_acquire.
  std::byte* local() const { return local_.data; }
  std::uint64_t bytes() const { return local_.bytes; }
  const RemoteRegion& at(NodeId node) const { return remote(node, 0); }
  fabric::Sge sge(std::uint64_t offset, std::uint32_t length) const {
    return local_.sge(offset, length);
  }

  // Both throw Error(kInvalidArgument) for bytes beyond the region's end, where other memory lies,
  // and for a node that takes no part.
  AckKey write(Caller& me, NodeId to, std::uint64_t offset, const fabric::Sge& from) const {
    check(to, offset, from.length);
    return me.write(to, at(to), offset, from);
  }
  AckKey read(Caller& me, NodeId from, std::uint64_t offset, const fabric::Sge& into) const {
    check(from, offset, into.length);
    return me.read(from, at(from), offset, into);
  }

 private:
  void check(NodeId node, std::uint64_t offset, std::uint64_t size) const {
    const std::uint64_t bytes = node < manager().nodes() ? at(node).length : 0;
    if (offset > bytes || size > bytes - offset) [[unlikely]]
      throw_outside(node, offset, size);
  }
  [[noreturn]] void throw_outside(NodeId node, std::uint64_t offset, std::uint64_t size) const;
  void make(std::uint64_t bytes, std::uint32_t peers, Placement placement) {
    local_ = add_region("data", bytes, peers, placement);
    expect_region("data", bytes);
    join();
  }
  LocalRegion local_;
};

}  // namespace pyrdma::loco
