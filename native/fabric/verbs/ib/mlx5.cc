#include "fabric/verbs/ib/mlx5.h"

#include <dlfcn.h>

namespace pyrdma::fabric::verbs {
namespace {

template <class Function>
void find(void* handle, const char* name, const char* version, Function* function) {
  *function = reinterpret_cast<Function>(::dlvsym(handle, name, version));
}

Mlx5Library open_all() {
  Mlx5Library library;
  void* mlx5 = ::dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
  void* verbs = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (mlx5 == nullptr || verbs == nullptr) return library;
  find(mlx5, "mlx5dv_is_supported", "MLX5_1.8", &library.is_supported);
  find(mlx5, "mlx5dv_create_qp", "MLX5_1.3", &library.create_qp);
  find(mlx5, "mlx5dv_qp_ex_from_ibv_qp_ex", "MLX5_1.10", &library.dynamic_of);
  find(verbs, "ibv_qp_to_qp_ex", "IBVERBS_1.6", &library.extended_of);
  return library;
}

}  // namespace

const Mlx5Library* Mlx5Library::get() {
  static const Mlx5Library library = open_all();
  return library.complete() ? &library : nullptr;
}

}  // namespace pyrdma::fabric::verbs
