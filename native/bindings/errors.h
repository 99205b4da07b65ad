// Errors that only the Python module has.
#pragma once
#include <cstdint>
#include <string>

#include "base/error.h"
#include "fabric/types.h"

namespace pyrdma::bindings {

/// A request completed with an error. Becomes pyrdma.CompletionError with status, wr_id, qp_num.
class CompletionFailed : public Error {
 public:
  explicit CompletionFailed(const fabric::Completion& completion);
  fabric::Completion completion;
};

/// Becomes BufferError: NumPy arrays still use the memory.
class StillExported : public Error {
 public:
  explicit StillExported(const std::string& what) : Error(ErrorCode::kInvalidArgument, what) {}
};

}  // namespace pyrdma::bindings
