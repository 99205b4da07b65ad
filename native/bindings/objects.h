// The Python objects of the fabric. Each object keeps alive the objects that it uses.
#pragma once
#include <pybind11/numpy.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "bindings/session.h"
#include "fabric/fabric.h"

namespace pyrdma::bindings {

/// A native object of one node. It lives until it is closed or its session is closed.
template <class Native>
class Held : public Owned {
 public:
  Held(std::shared_ptr<Session> session, NodeId node, std::unique_ptr<Native> native)
      : Owned(std::move(session)), node_(node), native_(std::move(native)) {}
  void drop() override { native_.reset(); }
  NodeId node() const { return node_; }
  /// Called only inside Session::call. Throws Error when the object is closed.
  Native& native() const {
    session().world();
    if (!native_) throw Error(ErrorCode::kUnavailable, "this object is closed");
    return *native_;
  }
  Env& env() const { return session().env(node_); }
  /// The object cannot be closed while it lives.
  class Use {
   public:
    explicit Use(Held& held) : held_(held) {
      const auto lock = held.lock();  // not while close() looks
      held_.use();
    }
    ~Use() { held_.release(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Held& held_;
  };
  /// A call that one thread at a time may make.
  class Call {
   public:
    explicit Call(Held& held) : use_(held), lock_(held.lock()) {}

   private:
    Use use_;
    std::unique_lock<std::mutex> lock_;
  };
  /// Counts what must end before this object is closed, queue pairs and calls, up or down.
  void use() { ++users_; }
  void release() { --users_; }
  /// Destroys the native part; a second call does nothing. Throws Error while a queue pair or a
  /// call uses the object.
  void close() {
    const py::gil_scoped_release release;
    session().exclusively([this] {
      const auto alone = lock();
      if (native_ && users_ != 0) {
        throw Error(ErrorCode::kInvalidArgument,
                    "a queue pair, or a call that waits, still uses this object; close the queue "
                    "pair, or let the call end, first");
      }
      drop();
    });
  }

 protected:
  /// Tasks of a simulated world share an OS thread, and one that waited with a lock would hold up
  /// all of them: there the lock is not taken.
  std::unique_lock<std::mutex> lock() {
    std::unique_lock<std::mutex> taken(mutex_, std::defer_lock);
    if (!session().simulated()) taken.lock();
    return taken;
  }

  NodeId node_;
  std::unique_ptr<Native> native_;
  std::mutex mutex_;
  std::atomic<int> users_{0};
};

class PyDomain final : public Held<fabric::ProtectionDomain> {
 public:
  PyDomain(std::shared_ptr<Session> session, NodeId node, std::uint32_t device,
           std::unique_ptr<fabric::ProtectionDomain> native)
      : Held(std::move(session), node, std::move(native)), device_(device) {}
  ~PyDomain() override { leave(); }
  int rank() const override { return 5; }
  fabric::Device& device() const { return env().device_at(device_); }

 private:
  std::uint32_t device_;
};

class PyRegion final : public Held<fabric::MemoryRegion>,
                       public std::enable_shared_from_this<PyRegion> {
 public:
  PyRegion(std::shared_ptr<PyDomain> domain, std::unique_ptr<fabric::MemoryRegion> region);
  ~PyRegion() override { leave(); }
  int rank() const override { return 4; }
  void drop() override;
  bool covers(NodeId node, std::uint64_t addr, std::uint64_t length) const override;
  /// Returns the bytes without a copy; the array keeps the region. Throws Error for device memory.
  py::array_t<std::uint8_t> array();
  /// Deregisters the memory. Raises BufferError while arrays use it.
  void close();
  fabric::Sge sge(std::size_t offset, std::size_t length) const;
  fabric::RemoteRegion remote() const { return remote_; }
  std::uint32_t lkey() const { return lkey_; }

 private:
  std::shared_ptr<PyDomain> domain_;
  fabric::RemoteRegion remote_;
  std::byte* data_;
  std::uint32_t lkey_;
  std::atomic<int> exports_{0};
};

class PyCompletionQueue final : public Held<fabric::CompletionQueue> {
 public:
  using Held::Held;
  ~PyCompletionQueue() override { leave(); }
  int rank() const override { return 3; }
};

class PySharedReceiveQueue final : public Held<fabric::SharedReceiveQueue> {
 public:
  PySharedReceiveQueue(std::shared_ptr<PyDomain> domain,
                       std::unique_ptr<fabric::SharedReceiveQueue> queue);
  ~PySharedReceiveQueue() override { leave(); }
  int rank() const override { return 2; }

 private:
  std::shared_ptr<PyDomain> domain_;
};

class PyAddressHandle final : public Held<fabric::AddressHandle> {
 public:
  PyAddressHandle(std::shared_ptr<PyDomain> domain, std::unique_ptr<fabric::AddressHandle> handle,
                  const fabric::QpAddress& peer);
  ~PyAddressHandle() override { leave(); }
  int rank() const override { return 1; }
  const fabric::QpAddress& peer() const { return peer_; }

 private:
  std::shared_ptr<PyDomain> domain_;
  fabric::QpAddress peer_;
};

class PyQueuePair final : public Held<fabric::QueuePair> {
 public:
  PyQueuePair(std::shared_ptr<PyDomain> domain, std::shared_ptr<PyCompletionQueue> sends,
              std::shared_ptr<PyCompletionQueue> receives,
              std::shared_ptr<PySharedReceiveQueue> shared, std::unique_ptr<fabric::QueuePair> qp);
  ~PyQueuePair() override { leave(); }
  int rank() const override { return 0; }
  void drop() override;
  /// A request in flight may still read the handle, so the handle lives as long as the queue pair.
  void keep(std::shared_ptr<PyAddressHandle> handle);

 private:
  std::shared_ptr<PyDomain> domain_;
  std::shared_ptr<PyCompletionQueue> sends_, receives_;
  std::shared_ptr<PySharedReceiveQueue> shared_;
  std::mutex handles_mutex_;
  std::set<std::shared_ptr<PyAddressHandle>> handles_;
};

/// A device of a node.
struct PyDevice {
  std::shared_ptr<Session> session;
  NodeId node;
  std::uint32_t index = 0;  // number of the device at its node

  fabric::Device& native() const { return session->env(node).device_at(index); }
};

}  // namespace pyrdma::bindings
