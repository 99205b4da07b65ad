#include "systems/krcore/race/storage.h"

#include <string>

#include "base/error.h"
#include "base/remote_word.h"
#include "systems/krcore/race/subtable.h"

namespace pyrdma::krcore::race {

namespace {

TableAddress described(const StorageOptions& options) {
  TableAddress address;
  address.nodes = options.nodes;
  address.groups = options.groups;
  address.first_depth = options.first_depth;
  address.max_depth = options.max_depth;
  address.max_key_bytes = options.max_key_bytes;
  address.max_value_bytes = options.max_value_bytes;
  // The other nodes' memory is unknown; the checks need some.
  TableAddress checked = address;
  for (fabric::RemoteRegion& region : checked.regions) region.length = options.bytes;
  checked.check();
  if (options.index >= options.nodes)
    throw Error(ErrorCode::kInvalidArgument,
                "a RACE storage node has index " + std::to_string(options.index) + " of " +
                    std::to_string(options.nodes) + " nodes: count them from 0");
  return address;
}

std::uint64_t* word_at(std::byte* data, std::uint64_t offset) {
  return reinterpret_cast<std::uint64_t*>(data + offset);
}

}  // namespace

Storage::Storage(Env& env, fabric::Device& device, fabric::ProtectionDomain& pd,
                 const StorageOptions& options)
    : address_(described(options)),
      memory_(device.allocate(pd, options.bytes, fabric::kAllAccess)) {
  fabric::RemoteRegion& region = address_.regions[options.index];
  region = memory_->remote();
  region.node = env.node();
  std::byte* data = memory_->data();
  store_release(word_at(data, kAllocationAt), address_.heap_at());
  store_release(word_at(data, kGlobalDepthAt), std::uint64_t{address_.first_depth});
  for (std::uint32_t index = 0; index < 1U << address_.first_depth; ++index) {
    const DirectoryEntry entry = address_.first_subtable(index);
    if (options.index == 0) store_release(word_at(data, kDirectoryAt + 8ULL * index), entry.word());
    if (entry.node == options.index)
      format_subtable({data + entry.offset, address_.subtable_bytes()}, entry.depth, index);
  }
}

}  // namespace pyrdma::krcore::race
