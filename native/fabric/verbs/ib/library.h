// libibverbs and librdmacm are opened at run time, by symbol and version, so that one build runs
// with and without them. The data path needs no symbol: its verbs are inline calls through
// ibv_context::ops.
#pragma once
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <string>

namespace pyrdma::fabric::verbs {

// X(name without prefix, version of the symbol). The versions are needed because libibverbs still
// exports the functions of its first ABI under the same names.
#define PYRDMA_VERBS_SYMBOLS(X)      \
  X(get_device_list, "IBVERBS_1.1")  \
  X(free_device_list, "IBVERBS_1.1") \
  X(get_device_name, "IBVERBS_1.1")  \
  X(open_device, "IBVERBS_1.1")      \
  X(close_device, "IBVERBS_1.1")     \
  X(query_device, "IBVERBS_1.1")     \
  X(query_port, "IBVERBS_1.1")       \
  X(query_gid, "IBVERBS_1.1")        \
  X(alloc_pd, "IBVERBS_1.1")         \
  X(dealloc_pd, "IBVERBS_1.1")       \
  X(reg_mr, "IBVERBS_1.1")           \
  X(dereg_mr, "IBVERBS_1.1")         \
  X(create_cq, "IBVERBS_1.1")        \
  X(destroy_cq, "IBVERBS_1.1")       \
  X(create_srq, "IBVERBS_1.1")       \
  X(destroy_srq, "IBVERBS_1.1")      \
  X(create_qp, "IBVERBS_1.1")        \
  X(destroy_qp, "IBVERBS_1.1")       \
  X(modify_qp, "IBVERBS_1.1")        \
  X(query_qp, "IBVERBS_1.1")         \
  X(create_ah, "IBVERBS_1.1")        \
  X(destroy_ah, "IBVERBS_1.1")       \
  X(get_async_event, "IBVERBS_1.1")  \
  X(ack_async_event, "IBVERBS_1.1")  \
  X(event_type_str, "IBVERBS_1.1")

#define PYRDMA_CM_SYMBOLS(X)             \
  X(create_event_channel, "RDMACM_1.0")  \
  X(destroy_event_channel, "RDMACM_1.0") \
  X(create_id, "RDMACM_1.0")             \
  X(destroy_id, "RDMACM_1.0")            \
  X(bind_addr, "RDMACM_1.0")             \
  X(resolve_addr, "RDMACM_1.0")          \
  X(resolve_route, "RDMACM_1.0")         \
  X(listen, "RDMACM_1.0")                \
  X(connect, "RDMACM_1.0")               \
  X(accept, "RDMACM_1.0")                \
  X(migrate_id, "RDMACM_1.0")            \
  X(disconnect, "RDMACM_1.0")            \
  X(get_cm_event, "RDMACM_1.0")          \
  X(ack_cm_event, "RDMACM_1.0")          \
  X(event_str, "RDMACM_1.0")             \
  X(establish, "RDMACM_1.2")             \
  X(init_qp_attr, "RDMACM_1.2")

/// The functions of libibverbs. The library is opened once per process and never closed: providers
/// (libmlx5, librxe) stay loaded with it and may have threads.
class Library {
 public:
  /// Throws Error(kUnavailable) with the reason: the library is absent, or lacks the named symbol.
  /// Tests give another `file`.
  static const Library& get();
  explicit Library(const char* file);

#define PYRDMA_DECLARE(name, version) decltype(&::ibv_##name) name = nullptr;
  PYRDMA_VERBS_SYMBOLS(PYRDMA_DECLARE)
#undef PYRDMA_DECLARE
  /// Takes the optional access flags; null before rdma-core 28.
  ibv_mr* (*reg_mr_iova2)(ibv_pd*, void*, std::size_t, std::uint64_t, unsigned) = nullptr;
  /// Null before rdma-core 32.
  int (*query_gid_ex)(ibv_context*, std::uint32_t, std::uint32_t, ibv_gid_entry*, std::uint32_t,
                      std::size_t) = nullptr;
};

/// The functions of librdmacm.
class CmLibrary {
 public:
  static const CmLibrary& get();
  explicit CmLibrary(const char* file);

#define PYRDMA_DECLARE(name, version) decltype(&::rdma_##name) name = nullptr;
  PYRDMA_CM_SYMBOLS(PYRDMA_DECLARE)
#undef PYRDMA_DECLARE
};

/// Returns why the libraries cannot be used; empty when they can.
std::string library_problem();

}  // namespace pyrdma::fabric::verbs
