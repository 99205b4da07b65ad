// The table of the shared workloads, and the code that loads users' workloads.
#include <dlfcn.h>

#include <algorithm>
#include <numeric>

#include "base/assert.h"
#include "base/error.h"
#include "base/quote.h"
#include "measure/shared_workloads.h"
#include "measure/workload.h"

namespace pyrdma::measure {

namespace {

constexpr NamedWorkload kShared[] = {
    {"control_path", make_control_path,
     R"(Clients set connections up from scratch, over and over (KRCore, sections 2.3.1 and 5.1).

Node 0 serves. A client of another node opens the device, creates protection domain, memory,
queues and queue pair, exchanges addresses with the server and configures the connection.

Latencies of one connection: ``connect`` in all, and by step ``open``, ``create_pd``,
``register``, ``create_cq``, ``create_qp``, ``handshake``, ``configure``.)"},
    {"idle", make_idle, "Idle threads, to measure the cost of a node."},
    {"litmus", make_litmus,
     R"(Compares outcomes of small concurrent programs with the memory model.

The programs use raw fabric operations. Metrics of node 0: ``outcome|SHAPE|LEVEL|VALUES``, the
number of times that an allowed or seen outcome was seen; ``rounds``; ``forbidden``, seen outcomes
that no level allows (0 unless the fabric is broken); ``unseen``, outcomes of late memory that were
not seen. Each level is weaker than the one before: ``sequential``,
``asynchronous`` (both of strong memory), ``late``, ``repeated``, ``store buffer``,
``forbidden``.

A program is a built-in `shape`, or is written in the language of
`native/measure/litmus/program.h`:
``Litmus(locations="x@1 f@1", threads="0: put x 1; put f 1 | 1: load r0 f; load r1 x",
observed="r0 r1")``.)"},
    {"memcpy", make_memcpy,
     "One thread of every node copies `size` bytes in local memory: latency ``memcpy``, "
     "bandwidth."},
    {"soak", make_soak,
     R"(Every node exchanges checked data with every other while nodes are killed and restarted.

Metrics: ``rounds`` exchanged, peers ``met`` and ``lost``; ``wrong``, impossible words, counters,
messages and statuses (0 unless the fabric is broken). Node 0 records ``lost/KILLED/PEER``
(node.incarnation) when a peer notices the end of a node: the time in ns since the start of the
run.)",
     /*survives=*/true},
    {"verbs_load", make_verbs_load,
     R"(Raw verbs under load, with perftest's axes.

Metrics: ``ops``, ``rate``, ``bandwidth``; receivers add ``received``
and ``receive_rate``. Latencies: one of the operation's name, and ``post``, where recorded.)"},
};

constexpr const char* kFactory = "pyrdma_make_workload";

std::unique_ptr<Workload> load(const std::string& path, const std::string& name) {
  // The library is never closed: the workload's code and type information stay in use for as long
  // as the workload or its results exist.
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
  if (!workload)
    throw Error(ErrorCode::kInvalidArgument, path + " has no workload " + in_quotes(name));
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

std::span<const NamedWorkload> shared_workloads() { return kShared; }

void Workloads::add(std::span<const NamedWorkload> rows) {
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  std::ranges::sort(rows_, {}, &NamedWorkload::name);
  const auto twice = std::ranges::adjacent_find(rows_, {}, &NamedWorkload::name);
  PYRDMA_ASSERT(twice == rows_.end());
}

std::vector<std::string> Workloads::names() const {
  std::vector<std::string> names;
  for (const NamedWorkload& row : rows_) names.emplace_back(row.name);
  return names;
}

std::unique_ptr<Workload> Workloads::make(const std::string& name) const {
  for (const NamedWorkload& row : rows_) {
    if (name == row.name) return row.make();
  }
  const std::size_t library = name.rfind(".so:");
  if (library != std::string::npos)
    return load(name.substr(0, library + 3), name.substr(library + 4));
  const std::vector<std::string> known = names();
  throw Error(ErrorCode::kInvalidArgument, "no workload is named " + in_quotes(name) +
                                               suggest(name, known) +
                                               " (a library's is written path.so:name)");
}

}  // namespace pyrdma::measure
