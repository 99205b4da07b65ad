// The error of a failed set-up. Outcomes of operations are values (fabric::Status), never
// exceptions.
#pragma once
#include <stdexcept>
#include <string>

namespace pyrdma {

enum class ErrorCode {
  kInvalidArgument,  // a value out of its bounds; the message names value, bound and remedy
  kUnavailable,      // a fabric, device, package or peer that is not there
  kExhausted,        // memory, queue entries, descriptors
  kTimeout,          // a deadline passed
  kInternal,
};

/// Thrown on the control path only. `definite()` says that the failed request certainly had no
/// effect.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what, bool definite = true)
      : std::runtime_error(what), code_(code), definite_(definite) {}
  ErrorCode code() const { return code_; }
  bool definite() const { return definite_; }

 private:
  ErrorCode code_;
  bool definite_;
};

}  // namespace pyrdma
