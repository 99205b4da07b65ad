// The functions of libraft, from the shared library that the program opens at run time.
#pragma once
#include <memory>
#include <string>

#include "systems/erpc/raft/libraft/present.h"

#ifdef PYRDMA_LIBRAFT

// The functions that the seam calls.
// clang-format off
#define PYRDMA_LIBRAFT_FUNCTIONS(X) \
  X(strerror) X(configuration_init) X(configuration_close) X(configuration_add) \
  X(configuration_encode) X(init) X(close) X(start) X(set_election_timeout) \
  X(set_heartbeat_timeout) X(set_install_snapshot_timeout) X(set_snapshot_threshold) \
  X(set_snapshot_trailing) X(set_pre_vote) X(errmsg) X(state) X(leader) X(last_index) \
  X(last_applied) X(apply) X(barrier) X(add) X(assign) X(remove) X(transfer) X(malloc) X(free)
// clang-format on

namespace pyrdma::erpc::raft {

/// Library holds the shared library open.
class Library {
 public:
  /// Throws Error(kUnavailable) that names the Debian package.
  Library();
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

#define PYRDMA_LIBRAFT_MEMBER(name) decltype(&::raft_##name) name = nullptr;
  PYRDMA_LIBRAFT_FUNCTIONS(PYRDMA_LIBRAFT_MEMBER)
#undef PYRDMA_LIBRAFT_MEMBER

  /// Memory that libraft frees, or has allocated. Throws std::bad_alloc.
  void* take(std::size_t bytes) const;
  template <class T>
  T* take_array(std::size_t count) const {
    return static_cast<T*>(take(count * sizeof(T)));
  }

 private:
  void* handle_ = nullptr;
};

}  // namespace pyrdma::erpc::raft

#endif
