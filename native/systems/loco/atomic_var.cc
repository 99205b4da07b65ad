#include "systems/loco/atomic_var.h"

#include "base/error.h"
#include "base/remote_word.h"

namespace pyrdma::loco {

namespace {

constexpr std::uint32_t kPeers = fabric::kRemoteAtomic | fabric::kRemoteRead | fabric::kRemoteWrite;

}  // namespace

void AtomicVars::make(Placement placement) {
  const std::uint64_t hosts = participants().size();
  const std::uint64_t bytes = (count_ + hosts - 1) / hosts * 8;
  local_ = add_region("words", bytes, kPeers, placement);
  expect_region("words", bytes);
  join();
}

void AtomicVars::throw_unreachable(std::uint64_t i, fabric::Status status) const {
  throw Error(ErrorCode::kUnavailable,
              "word " + std::to_string(i) + " of '" + name() + "' is at node " +
                  std::to_string(host_of(i)) + ", which does not answer (" + to_string(status) +
                  "): it was killed or cut off",
              false)
      .blaming({host_of(i)});
}

AtomicVar::AtomicVar(Manager& manager, std::string name, NodeId host,
                     std::vector<NodeId> participants, Placement placement)
    : Channel(manager, std::move(name), std::move(participants)), host_(host) {
  make(placement);
}

AtomicVar::AtomicVar(Channel& parent, std::string_view name, NodeId host, Placement placement)
    : Channel(parent, name), host_(host) {
  make(placement);
}

AtomicVar::AtomicVar(Channel& parent, std::string_view name, NodeId host, std::uint64_t initial)
    : Channel(parent, name), host_(host) {
  make(Placement::kHost, initial);
}

void AtomicVar::make(Placement placement, std::uint64_t initial) {
  assign("host", host_);
  if (host_ == self()) {
    const LocalRegion& word = add_region("word", 8, kPeers, placement);
    if (initial != 0) store_release(reinterpret_cast<std::uint64_t*>(word.data), initial);
  }
  expect_region("word", 8, host_);
  join();
}

}  // namespace pyrdma::loco
