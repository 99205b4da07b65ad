#include "systems/krcore/meta/meta_server.h"

namespace pyrdma::krcore {

MetaServer::MetaServer(fabric::Device& device, fabric::ProtectionDomain& domain,
                       std::uint32_t nodes) {
  const HashShape targets = HashShape::of(nodes, sizeof(DctMeta));
  const HashShape locations = HashShape::of(nodes, sizeof(ValidMrRecord));
  targets_memory_ = device.allocate(domain, targets.bytes(), fabric::kRemoteRead);
  locations_memory_ = device.allocate(domain, locations.bytes(), fabric::kRemoteRead);
  targets_ = std::make_unique<ClusterHash>(targets, targets_memory_->data());
  locations_ = std::make_unique<ClusterHash>(locations, locations_memory_->data());
}

bool MetaServer::add(std::uint32_t node, const DctMeta& meta, const ValidMrRecord& regions) {
  DctMeta known;
  if (targets_->find(node, std::as_writable_bytes(std::span(&known, 1))) &&
      known.incarnation > meta.incarnation)
    return true;
  return locations_->insert(node, std::as_bytes(std::span(&regions, 1))) &&
         targets_->insert(node, std::as_bytes(std::span(&meta, 1)));
}

bool MetaServer::find_target(std::uint32_t node, DctMeta& meta) const {
  return targets_->find(node, std::as_writable_bytes(std::span(&meta, 1)));
}

bool MetaServer::find(std::uint32_t node, DctMeta& meta, ValidMrRecord& regions) const {
  return targets_->find(node, std::as_writable_bytes(std::span(&meta, 1))) &&
         locations_->find(node, std::as_writable_bytes(std::span(&regions, 1)));
}

}  // namespace pyrdma::krcore
