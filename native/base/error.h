// Error reports a failed set-up. Outcomes of operations are values (fabric::Status), never
// exceptions.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pyrdma {

enum class ErrorCode {
  kInvalidArgument,  // a value is out of its bounds; the message names value, bound and remedy
  kUnavailable,      // a fabric, device, package or peer is absent
  kExhausted,        // memory, queue entries or descriptors are used up
  kTimeout,          // a deadline passed
  kInternal,
};

/// Functions of the control path alone throw it. `definite()` says that the failed request
/// certainly had no effect.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what, bool definite = true)
      : std::runtime_error(what), code_(code), definite_(definite) {}
  ErrorCode code() const { return code_; }
  bool definite() const { return definite_; }
  /// The nodes to blame, such as a peer that does not answer; empty if the error blames no node.
  const std::vector<std::uint32_t>& nodes() const { return nodes_; }
  /// Sets nodes(): `throw Error(...).blaming({peer})`.
  Error&& blaming(std::vector<std::uint32_t> nodes) && {
    nodes_ = std::move(nodes);
    return std::move(*this);
  }

 private:
  ErrorCode code_;
  bool definite_;
  std::vector<std::uint32_t> nodes_;
};

}  // namespace pyrdma
