// A workload is a named program that every node of a cluster runs to measure something. It takes
// parameters and runs unchanged in all worlds. A user's workload comes from a shared library that
// is built against these headers.
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

/// A workload object; each node makes one per run.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::span<const ParameterSpec> parameters() const = 0;
  /// Runs on the node's first thread and returns when the node's part is over. Throws Error after a
  /// failure. The fabric objects that it made are gone when it returns.
  virtual void run(Env& env, const Params& params, Recorder& recorder) = 0;
};

/// A row of a table of workloads.
struct NamedWorkload {
  std::string_view name;
  std::unique_ptr<Workload> (*make)();
  /// Docstring of the Python class that is generated for the workload: its purpose in one line,
  /// then its metrics.
  std::string_view about;
  /// True if the workload continues while nodes are killed on purpose.
  bool survives = false;
};

/// The workloads that a program knows. A table is filled once and only read afterwards.
class Workloads {
 public:
  /// Adds the rows. Two workloads with one name are a bug.
  void add(std::span<const NamedWorkload> rows);

  /// Makes a workload by its name. `path.so:name` loads the shared library at `path`, which stays
  /// loaded, and calls its `extern "C" pyrdma::measure::Workload* pyrdma_make_workload(const char*
  /// name)`; a null pointer means an unknown name. Throws Error(kInvalidArgument) naming the
  /// nearest known name, or Error(kUnavailable) with the loader's reason.
  std::unique_ptr<Workload> make(const std::string& name) const;

  /// Returns all rows, sorted by name.
  std::span<const NamedWorkload> rows() const { return rows_; }
  std::vector<std::string> names() const;

 private:
  std::vector<NamedWorkload> rows_;
};

/// Returns the workloads that belong to no system.
std::span<const NamedWorkload> shared_workloads();

/// Returns "; did you mean 'x'?" with the known name most like `name`, or an empty text when no
/// name is near.
std::string suggest(std::string_view name, std::span<const std::string> known);

}  // namespace pyrdma::measure
