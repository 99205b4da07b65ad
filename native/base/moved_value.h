// A value that leaves its default behind when it moves: the state of an object that has an end, so
// that the object can have a default move constructor.
#pragma once
#include <utility>

namespace pyrdma {

template <class T>
class MovedValue {
 public:
  MovedValue() = default;
  MovedValue(MovedValue&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  MovedValue& operator=(T value) {
    value_ = value;
    return *this;
  }
  operator T() const { return value_; }  // NOLINT: it stands for the value

 private:
  T value_{};
};

}  // namespace pyrdma
