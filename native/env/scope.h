// The steps of protocols, and what each costs a CPU.
//
// A step is a CpuScope: a name with the instructions and cache lines that `pyrdma calibrate scopes`
// has counted in the compiled code. Each folder lists its own in scopes.h. Code opens a Scope at
// the begin of the step. The simulated world then charges the cost of the step to the thread; in
// the real world the work itself takes the time. env/sim/README.md has the model.
#pragma once
#include <cstdint>
#include <string_view>

#include "env/env.h"

namespace pyrdma {

/// The cost of one pass through a step, without the steps inside it: the mean of the counted ones.
/// Lines are distinct cache lines that the step touches, by where they come from. A line in the
/// first-level cache costs nothing beyond its instruction.
struct CpuScope {
  std::string_view name;  // "loco/lookup"
  double instructions = 0;
  double near = 0;                    // lines from the core's own second-level cache
  double llc = 0;                     // from the last-level cache
  double nic = 0;                     // that the NIC has written since the thread's last access
  double core = 0;                    // that another core has written, or must give up
  double memory = 0;                  // that no cache holds
  char begin_mark = 0, end_mark = 0;  // the calibration reads them: their addresses name the step
};

/// Scope is one pass through a step, from its construction until its destruction. Scopes of a
/// thread nest.
class [[nodiscard]] Scope {
 public:
  Scope(Env& env, const CpuScope& step) : Scope(env, step, env.has_model_) {}
  ~Scope() {
    if (observer_ != nullptr) [[unlikely]]
      observer_->leave_model(*step_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Scope(Env& env, const CpuScope& step, bool has_model)
      : observer_(has_model ? env.enter_model(step) : nullptr), step_(&step) {}
  Env* observer_;
  const CpuScope* step_;
};

/// Footprint declares memory of a node that protocol code walks at random, such as a table. A copy
/// or a walk costs by the size of what it walks: Env::charge_copy, Env::charge_walk. The node's
/// footprints share its last-level cache.
class Footprint {
 public:
  Footprint(Env& env, const void* data, std::uint64_t bytes) : env_(env), bytes_(bytes) {
    if (env.has_model_) env.footprint_model(data, bytes, true);
  }
  ~Footprint() {
    if (env_.has_model_) env_.footprint_model(nullptr, bytes_, false);
  }
  Footprint(const Footprint&) = delete;
  Footprint& operator=(const Footprint&) = delete;
  std::uint64_t bytes() const { return bytes_; }

 private:
  Env& env_;
  std::uint64_t bytes_;
};

}  // namespace pyrdma
