#include "systems/erpc/msg_buffer.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <string>

#include "base/error.h"
#include "systems/erpc/scopes.h"

namespace pyrdma::erpc {

void MsgBuffer::throw_too_long(std::uint32_t bytes) const {
  throw Error(ErrorCode::kInvalidArgument,
              "a message of " + std::to_string(bytes) + " bytes in a buffer of " +
                  std::to_string(capacity_) + ": allocate a larger buffer");
}

BufferPool::BufferPool(Env& env, runtime::MemoryPool& memory, std::uint32_t payload,
                       std::uint32_t max_message, bool is_shared)
    : env_(env),
      memory_(memory),
      payload_(payload),
      max_message_(max_message),
      is_shared_(is_shared),
      mutex_(env) {}

std::uint32_t BufferPool::class_of(std::uint32_t bytes) {
  return std::max<std::uint32_t>(static_cast<std::uint32_t>(std::bit_width(bytes - (bytes != 0))),
                                 kLeastClass);
}

MsgBuffer* BufferPool::take(std::uint32_t bytes) {
  const Scope step(env_, scope::take_buffer);
  if (bytes > max_message_) [[unlikely]] {
    throw Error(ErrorCode::kInvalidArgument,
                "a message of " + std::to_string(bytes) + " bytes: the limit is " +
                    std::to_string(max_message_) +
                    "; raise the eRPC option max_message, or send it in parts");
  }
  std::unique_lock lock(mutex_, std::defer_lock);
  if (is_shared_) lock.lock();
  const std::uint32_t size_class = class_of(bytes);
  std::vector<MsgBuffer*>& free = free_[size_class];
  if (free.empty()) [[unlikely]]
    grow(size_class);
  MsgBuffer* buffer = free.back();
  free.pop_back();
  buffer->size_ = bytes;
  return buffer;
}

void BufferPool::give_back(MsgBuffer* buffer) {
  const Scope step(env_, scope::give_buffer_back);
  std::unique_lock lock(mutex_, std::defer_lock);
  if (is_shared_) lock.lock();
  free_[buffer->size_class_].push_back(buffer);
}

void BufferPool::grow(std::uint32_t size_class) {
  const Scope step(env_, scope::grow_pool);
  const std::uint32_t capacity = 1U << size_class;
  const std::uint32_t packets = (capacity + payload_ - 1) / payload_;
  // The data begin at a cache line; the room of the first header ends there.
  const std::uint64_t bytes = kCacheLine + capacity + (packets - 1) * std::uint64_t{kHeaderRoom};
  const runtime::LocalRegion region = memory_.allocate(bytes);
  MsgBuffer& buffer = buffers_.emplace_back();
  buffer.data_ = region.data + kCacheLine;
  buffer.capacity_ = capacity;
  buffer.lkey_ = region.lkey;
  buffer.size_class_ = size_class;
  buffer.pool_ = this;
  if (packets > 1) buffer.footprint_.emplace(env_, buffer.data_, capacity);
  free_[size_class].push_back(&buffer);
}

}  // namespace pyrdma::erpc
