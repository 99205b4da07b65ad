// An Env with another device, for devices that stand on the node's own: decorators, virtual queue
// pairs.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "env/env.h"

namespace pyrdma {

/// Passes everything on to an Env, which must outlive it. A subclass overrides what it changes.
class EnvDecorator : public Env {
 public:
  explicit EnvDecorator(Env& inner) : Env(inner.has_model_), inner_(inner) {
    count_branches(inner.branches_);
  }
  NodeId node() const override { return inner_.node(); }
  NodeId nodes() const override { return inner_.nodes(); }
  std::uint32_t incarnation() const override { return inner_.incarnation(); }
  Time now() override { return inner_.now(); }
  bool poll_until_ref(FunctionRef<bool()> ready, Time deadline, Watch* only) override {
    return inner_.poll_until_ref(ready, deadline, only);
  }
  void notify(Watch& watch) override { inner_.notify(watch); }
  void sleep_until(Time t) override { inner_.sleep_until(t); }
  void work(Time duration) override { inner_.work(duration); }
  std::uint32_t cores() const override { return inner_.cores(); }
  std::uint32_t core() override { return inner_.core(); }
  void start_process() override { inner_.start_process(); }
  Rng rng(std::string_view purpose) override { return inner_.rng(purpose); }
  fabric::Device& device() override { return inner_.device(); }
  Storage& storage() override { return inner_.storage(); }
  Trace& trace() override { return inner_.trace(); }

 protected:
  std::unique_ptr<Thread> spawn_on(std::uint32_t core, std::string name,
                                   std::function<void()> body) override {
    return inner_.spawn(std::move(name), std::move(body), core);
  }
  void catch_up_model() override { inner_.catch_up(); }
  void charge_model(Cost cost, std::uint64_t count) override { inner_.charge(cost, count); }
  void charge_copy_model(std::size_t bytes, const Footprint* of) override {
    inner_.charge_copy(bytes, of);
  }
  void charge_walk_model(const Footprint& of, const void* at) override {
    inner_.charge_walk(of, at);
  }
  void prefetch_model(const Footprint& of, const void* at) override { inner_.prefetch(of, at); }
  Env* enter_model(const CpuScope& step) override { return inner_.enter_model(step); }
  void leave_model(const CpuScope& step) override { inner_.leave_model(step); }
  void footprint_model(const void* data, std::uint64_t bytes, bool exists) override {
    inner_.footprint_model(data, bytes, exists);
  }

  Env& inner_;
};

class EnvWithDevice final : public EnvDecorator {
 public:
  EnvWithDevice(Env& inner, fabric::Device& device) : EnvDecorator(inner), device_(device) {}
  fabric::Device& device() override { return device_; }

 private:
  fabric::Device& device_;
};

}  // namespace pyrdma
