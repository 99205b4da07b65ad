// Clears a flag at the end of a scope, also when the scope ends by an exception.
#pragma once
#include <atomic>

namespace pyrdma {

class HeldFlag {
 public:
  /// `flag` is set already; null: there is nothing to clear.
  explicit HeldFlag(std::atomic<bool>* flag) : flag_(flag) {}
  ~HeldFlag() {
    if (flag_ != nullptr) flag_->store(false, std::memory_order_release);
  }
  HeldFlag(const HeldFlag&) = delete;
  HeldFlag& operator=(const HeldFlag&) = delete;

 private:
  std::atomic<bool>* flag_;
};

}  // namespace pyrdma
