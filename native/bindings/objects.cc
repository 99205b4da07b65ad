#include "bindings/objects.h"

#include "bindings/errors.h"

namespace pyrdma::bindings {

PyRegion::PyRegion(std::shared_ptr<PyDomain> domain, std::unique_ptr<fabric::MemoryRegion> region)
    : Held(domain->session_pointer(), domain->node(), std::move(region)),
      domain_(std::move(domain)),
      remote_(native_->remote()),
      data_(native_->data()),
      lkey_(native_->lkey()) {}

void PyRegion::drop() {
  if (exports_ == 0) native_.reset();
}

void PyRegion::close() {
  const py::gil_scoped_release release;
  session().exclusively([this] {
    if (exports_ != 0) {
      throw StillExported(std::to_string(exports_) +
                          (exports_ == 1 ? " NumPy array still uses" : " NumPy arrays still use") +
                          " this memory region; delete them before you close it");
    }
    native_.reset();
  });
}

py::array_t<std::uint8_t> PyRegion::array() {
  struct Export {
    explicit Export(std::shared_ptr<PyRegion> shown) : region(std::move(shown)) {
      ++region->exports_;
      region->session().add_export();
    }
    ~Export() {
      Session& session = region->session();
      const std::shared_ptr<Session> kept = region->session_pointer();
      if (--region->exports_ == 0 && session.closed()) {
        const py::gil_scoped_release release;
        session.exclusively([this] { region->drop(); });
      }
      session.remove_export();
    }
    std::shared_ptr<PyRegion> region;
  };
  std::unique_ptr<Export> held;
  session().call([&] {
    native();
    if (data_ == nullptr) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "device memory has no array: the CPU cannot see it; reach it by read and write requests");
    }
    held = std::make_unique<Export>(shared_from_this());
  });
  const py::capsule base(held.get(), [](void* pointer) { delete static_cast<Export*>(pointer); });
  held.release();
  return {{static_cast<py::ssize_t>(remote_.length)},
          {py::ssize_t{1}},
          reinterpret_cast<std::uint8_t*>(data_),
          base};
}

fabric::Sge PyRegion::sge(std::size_t offset, std::size_t length) const {
  if (offset > remote_.length || length > remote_.length - offset || length > 0xffffffffU) {
    throw Error(ErrorCode::kInvalidArgument,
                "offset " + std::to_string(offset) + " with length " + std::to_string(length) +
                    " exceeds the region of " + std::to_string(remote_.length) + " B");
  }
  return {remote_.addr + offset, static_cast<std::uint32_t>(length), lkey_};
}

bool PyRegion::covers(NodeId node, std::uint64_t addr, std::uint64_t length) const {
  return node == node_ && native_ && data_ != nullptr && addr >= remote_.addr &&
         addr - remote_.addr <= remote_.length && length <= remote_.length - (addr - remote_.addr);
}

PySharedReceiveQueue::PySharedReceiveQueue(std::shared_ptr<PyDomain> domain,
                                           std::unique_ptr<fabric::SharedReceiveQueue> queue)
    : Held(domain->session_pointer(), domain->node(), std::move(queue)),
      domain_(std::move(domain)) {}

PyAddressHandle::PyAddressHandle(std::shared_ptr<PyDomain> domain,
                                 std::unique_ptr<fabric::AddressHandle> handle,
                                 const fabric::QpAddress& peer)
    : Held(domain->session_pointer(), domain->node(), std::move(handle)),
      domain_(std::move(domain)),
      peer_(peer) {}

PyQueuePair::PyQueuePair(std::shared_ptr<PyDomain> domain, std::shared_ptr<PyCompletionQueue> sends,
                         std::shared_ptr<PyCompletionQueue> receives,
                         std::shared_ptr<PySharedReceiveQueue> shared,
                         std::unique_ptr<fabric::QueuePair> qp)
    : Held(domain->session_pointer(), domain->node(), std::move(qp)),
      domain_(std::move(domain)),
      sends_(std::move(sends)),
      receives_(std::move(receives)),
      shared_(std::move(shared)) {
  sends_->use();
  receives_->use();
  if (shared_) shared_->use();
}

void PyQueuePair::drop() {
  const std::lock_guard<std::mutex> lock(handles_mutex_);
  if (!native_) return;
  native_.reset();
  sends_->release();
  receives_->release();
  if (shared_) shared_->release();
  for (const auto& handle : handles_) handle->release();
}

void PyQueuePair::keep(std::shared_ptr<PyAddressHandle> handle) {
  const std::lock_guard<std::mutex> lock(handles_mutex_);
  if (!native_) return;
  PyAddressHandle& kept = *handle;
  if (handles_.insert(std::move(handle)).second) kept.use();
}

}  // namespace pyrdma::bindings
