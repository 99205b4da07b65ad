#include "systems/erpc/raft/libraft/library.h"

#include <algorithm>

#ifdef PYRDMA_LIBRAFT

#include <dlfcn.h>

#include <new>

#include "base/error.h"
#include "systems/erpc/raft/member.h"

namespace pyrdma::erpc::raft {

namespace {

// The soname of 0.15, whose structures the header describes. Other versions have others.
constexpr const char* kSoname = "libraft.so.2";
constexpr const char* kInstallLibrary = "; sudo apt-get install -y libraft2";

}  // namespace

// The library stays mapped, so that a leak checker can name it.
Library::Library() : handle_(::dlopen(kSoname, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
  if (handle_ == nullptr)
    throw Error(ErrorCode::kUnavailable,
                std::string("raft: cannot open ") + kSoname + " of libraft 0.15" + kInstallLibrary);
  std::string missing;
#define PYRDMA_LIBRAFT_LOAD(name)                                           \
  name = reinterpret_cast<decltype(name)>(::dlsym(handle_, "raft_" #name)); \
  if (name == nullptr) missing += " raft_" #name;
  PYRDMA_LIBRAFT_FUNCTIONS(PYRDMA_LIBRAFT_LOAD)
#undef PYRDMA_LIBRAFT_LOAD
  if (missing.empty()) return;
  ::dlclose(handle_);
  throw Error(ErrorCode::kUnavailable,
              std::string("raft: ") + kSoname + " lacks" + missing + kInstallLibrary);
}

Library::~Library() { ::dlclose(handle_); }

void* Library::take(std::size_t bytes) const {
  void* memory = malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

std::string raft_problem() {
  try {
    Library library;
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace pyrdma::erpc::raft

#endif
