#include "fabric/verbs/ib/library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace pyrdma::fabric::verbs {
namespace {

constexpr const char* kInstall =
    "; install rdma-core: apt install libibverbs1 ibverbs-providers librdmacm1";

void* open_library(const char* name) {
  // RTLD_LOCAL: another copy in this process (of a framework, for example) keeps its own symbols.
  void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* reason = ::dlerror();
  throw Error(ErrorCode::kUnavailable,
              std::string("verbs: cannot open ") + name + ": " +
                  (reason != nullptr ? reason : "the loader gives no reason") + kInstall);
}

void* find(void* handle, const char* name, const char* version) {
  return ::dlvsym(handle, name, version);
}

void* require(void* handle, const char* library, const char* name, const char* version) {
  void* symbol = find(handle, name, version);
  if (symbol != nullptr) return symbol;
  throw Error(ErrorCode::kUnavailable, std::string("verbs: ") + library + " has no symbol " + name +
                                           " of version " + version +
                                           ": the library is too old or incomplete" + kInstall);
}

}  // namespace

#define PYRDMA_LOAD(prefix, name, version) \
  this->name = reinterpret_cast<decltype(this->name)>(require(handle, file, prefix #name, version));
#define PYRDMA_LOAD_VERB(name, version) PYRDMA_LOAD("ibv_", name, version)
#define PYRDMA_LOAD_CM(name, version) PYRDMA_LOAD("rdma_", name, version)

Library::Library(const char* file) {
  void* handle = open_library(file);
  PYRDMA_VERBS_SYMBOLS(PYRDMA_LOAD_VERB)
  reg_mr_iova2 =
      reinterpret_cast<decltype(reg_mr_iova2)>(find(handle, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
  query_gid_ex =
      reinterpret_cast<decltype(query_gid_ex)>(find(handle, "_ibv_query_gid_ex", "IBVERBS_1.11"));
}

CmLibrary::CmLibrary(const char* file) {
  void* handle = open_library(file);
  PYRDMA_CM_SYMBOLS(PYRDMA_LOAD_CM)
}

const Library& Library::get() {
  static const Library library("libibverbs.so.1");
  return library;
}

const CmLibrary& CmLibrary::get() {
  static const CmLibrary library("librdmacm.so.1");
  return library;
}

std::string library_problem() {
  try {
    Library::get();
    CmLibrary::get();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace pyrdma::fabric::verbs
