#include "systems/erpc/ordered_store/lmdb.h"

#include <dlfcn.h>

namespace pyrdma::erpc {

namespace {

constexpr const char* kInstallLmdb = "; install LMDB: apt-get install liblmdb0";

}  // namespace

std::string Lmdb::load(const char* file) {
  // RTLD_LOCAL: another copy in this process keeps its own symbols.
  void* handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return std::string("cannot open ") + file + ": " +
           (reason != nullptr ? reason : "the loader gives no reason") + kInstallLmdb;
  }
#define PYRDMA_LMDB_FIND(name, result, arguments)                                    \
  this->name = reinterpret_cast<result(*) arguments>(::dlsym(handle, "mdb_" #name)); \
  if (this->name == nullptr)                                                         \
    return std::string(file) + " has no function mdb_" #name + kInstallLmdb;
  PYRDMA_LMDB_FUNCTIONS(PYRDMA_LMDB_FIND)
#undef PYRDMA_LMDB_FIND
  int major = 0, minor = 0, patch = 0;
  const char* text = version(&major, &minor, &patch);
  if (major != 0 || minor != 9)
    return std::string(file) + " is " + text + ", but this build knows version 0.9" + kInstallLmdb;
  return {};
}

}  // namespace pyrdma::erpc
