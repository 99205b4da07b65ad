// mlx5's own interface, for dynamically connected transport. Like the other libraries it is opened
// at run time, and only where such a device is present.
#pragma once
#include <infiniband/mlx5dv.h>

#include "fabric/verbs/ib/library.h"

namespace pyrdma::fabric::verbs {

struct Mlx5Library {
  /// Returns null where libmlx5 or libibverbs is absent or older than rdma-core 26. Never closed.
  static const Mlx5Library* get();

  decltype(&::mlx5dv_is_supported) is_supported = nullptr;
  decltype(&::mlx5dv_create_qp) create_qp = nullptr;
  decltype(&::mlx5dv_qp_ex_from_ibv_qp_ex) dynamic_of = nullptr;
  decltype(&::ibv_qp_to_qp_ex) extended_of = nullptr;

  bool complete() const {
    return is_supported != nullptr && create_qp != nullptr && dynamic_of != nullptr &&
           extended_of != nullptr;
  }
};

}  // namespace pyrdma::fabric::verbs
