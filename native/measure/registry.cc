// The table of built-in workloads, and the loading of users' ones.
#include <dlfcn.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "measure/builtin.h"
#include "measure/workload.h"

namespace pyrdma::measure {

namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Workload> (*make)();
};

constexpr Entry kBuiltin[] = {
    {"control_path", make_control_path},
    {"idle", make_idle},
    {"litmus", make_litmus},
    {"loco_barrier", make_loco_barrier},
    {"loco_litmus", make_loco_litmus},
    {"loco_lock", make_loco_lock},
    {"loco_power", make_loco_power},
    {"loco_transactions", make_loco_transactions},
    {"loco_ycsb", make_loco_ycsb},
    {"memcpy", make_memcpy},
    {"soak", make_soak},
    {"verbs_load", make_verbs_load},
};

constexpr const char* kFactory = "pyrdma_make_workload";

std::unique_ptr<Workload> load(const std::string& path, const std::string& name) {
  // Never closed: the workload's code and type information stay in use for as long as anybody holds
  // it.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw Error(ErrorCode::kUnavailable,
                std::string("cannot load the workload library: ") + (reason ? reason : path));
  }
  using Factory = Workload* (*)(const char*);
  const auto factory = reinterpret_cast<Factory>(dlsym(library, kFactory));
  if (factory == nullptr) {
    throw Error(ErrorCode::kUnavailable, path + " does not define " + kFactory +
                                             "; declare it extern \"C\" with default visibility");
  }
  std::unique_ptr<Workload> workload(factory(name.c_str()));
  if (!workload) throw Error(ErrorCode::kInvalidArgument, path + " has no workload '" + name + "'");
  return workload;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string suggest(std::string_view name, std::span<const std::string> known) {
  const std::string* nearest = nullptr;
  std::size_t best = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(name.substr(0, 64), candidate);
    if (distance < best) {
      best = distance;
      nearest = &candidate;
    }
  }
  return nearest == nullptr ? std::string() : "; did you mean '" + *nearest + "'?";
}

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kBuiltin) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Workload> make_workload(const std::string& name) {
  for (const Entry& entry : kBuiltin) {
    if (name == entry.name) return entry.make();
  }
  const std::size_t library = name.rfind(".so:");
  if (library != std::string::npos)
    return load(name.substr(0, library + 3), name.substr(library + 4));
  const std::vector<std::string> names = workload_names();
  throw Error(ErrorCode::kInvalidArgument, "no workload is named '" + name + "'" +
                                               suggest(name, names) +
                                               " (a library's is written path.so:name)");
}

}  // namespace pyrdma::measure
