// The Env of a program on a device of software: virtual queue pairs, or LITE's calls.
#pragma once
#include "env/env_decorator.h"

namespace pyrdma::krcore {

/// A thread that waits for a completion queue is woken by all that happens on its node, since many
/// physical queues stand behind it.
template <class Device, class Owner>
class DeviceEnv final : public EnvDecorator {
 public:
  /// `owner`, which the device uses, must outlive this.
  DeviceEnv(Env& inner, Owner& owner) : EnvDecorator(inner), device_(owner) {}
  fabric::Device& device() override { return device_; }
  bool poll_until_ref(FunctionRef<bool()> ready, Time deadline, Watch* /*only*/) override {
    return inner_.poll_until_ref(ready, deadline, nullptr);
  }

 private:
  Device device_;
};

}  // namespace pyrdma::krcore
