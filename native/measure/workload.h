// A workload: what every node of a cluster runs to measure something. It is named, takes
// parameters, and runs unchanged in all worlds. A user's own one is loaded from a shared library
// built against these headers.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "env/env.h"
#include "measure/params.h"
#include "measure/recorder.h"

namespace pyrdma::measure {

/// One object per node and run.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::span<const ParameterSpec> parameters() const = 0;
  /// Runs on the node's first thread and returns when the node's part is over. Throws Error when
  /// something failed. Fabric objects that it made are gone when it returns.
  virtual void run(Env& env, const Params& params, Recorder& recorder) = 0;
};

/// Makes a workload by its name. `path.so:name` loads it from the shared library at `path` (which
/// stays loaded) through `extern "C" pyrdma::measure::Workload* pyrdma_make_workload(const char*
/// name)`, where nullptr means an unknown name. Throws Error(kInvalidArgument) naming the nearest
/// known name, or Error(kUnavailable) with the loader's reason.
std::unique_ptr<Workload> make_workload(const std::string& name);

/// Names of the built-in workloads, sorted.
std::vector<std::string> workload_names();

/// The known name most like `name`, as "; did you mean 'x'?", or nothing when none is near.
std::string suggest(std::string_view name, std::span<const std::string> known);

}  // namespace pyrdma::measure
