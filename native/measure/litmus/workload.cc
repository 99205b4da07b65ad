// litmus: small concurrent programs over raw fabric operations. It compares their outcomes with
// those that the memory model allows.
#include "base/error.h"
#include "measure/litmus/collector.h"
#include "measure/litmus/shapes.h"
#include "measure/shared_workloads.h"
#include "runtime/node_barrier.h"

namespace pyrdma::measure {

namespace {

using namespace litmus;
using Int = std::int64_t;

struct Test {
  std::string name;
  Program program;
  // Set for a user's own test; otherwise node 0 computes them.
  std::map<Outcome, Level> levels = {};
};

std::vector<Test> tests_of(const Params& params) {
  std::vector<Test> tests;
  if (!params.text("threads").empty()) {
    const Program program =
        parse(params.text("locations"), params.text("threads"), params.text("observed"));
    // Every node refuses a program that cannot end.
    return {{"custom", program, classify(program)}};
  }
  for (const Shape& shape : shapes()) {
    if (params.text("shape") == "all" || params.text("shape") == shape.name)
      tests.push_back({shape.name, parse(shape.locations, shape.threads, shape.observed)});
  }
  return tests;
}

std::vector<std::string> shape_names() {
  std::vector<std::string> names = {"all"};
  for (const Shape& shape : shapes()) names.emplace_back(shape.name);
  return names;
}

/// FailGuard ends the waits of the other threads when this one leaves by an exception.
class FailGuard {
 public:
  explicit FailGuard(Node& node) : node_(node) {}
  ~FailGuard() {
    if (!passed_) node_.fail();
  }
  FailGuard(const FailGuard&) = delete;
  FailGuard& operator=(const FailGuard&) = delete;
  void pass() { passed_ = true; }

 private:
  Node& node_;
  bool passed_ = false;
};

class Litmus final : public Workload {
 public:
  std::span<const ParameterSpec> parameters() const override {
    using Text = std::string;
    static const std::vector<ParameterSpec> specs = {
        {"shape", Text("all"), "",
         "built-in test to run, by its name; all runs every test and needs 4 nodes", 0, 0,
         shape_names()},
        {"rounds", Int{1000}, "count", "least rounds of each test", 1, 1e12},
        {"batch", Int{256}, "count", "rounds between two synchronisations of the nodes", 1,
         1 << 14},
        {"locations", Text(), "", "locations of a user's test: name@node..."},
        {"threads", Text(), "", "threads of a user's test: node: instruction; ... | ..."},
        {"observed", Text(), "", "registers and locations that a user's test observes"},
    };
    return specs;
  }

  void run(Env& env, const Params& params, Recorder& recorder) override {
    const std::vector<Test> tests = tests_of(params);
    std::vector<Layout> layouts;
    for (const Test& test : tests) {
      layouts.emplace_back(test.program, params.count("batch"));
      if (test.program.nodes > env.nodes())
        throw_parameter(params, "nodes",
                        "of the cluster is " + std::to_string(env.nodes()) + "; " + test.name +
                            " needs " + std::to_string(test.program.nodes));
    }
    Node node(env, params, layouts);
    for (std::size_t i = 0; i < tests.size(); ++i) {
      if (env.node() < tests[i].program.nodes)
        run_test(node, params, tests[i], layouts[i], i, recorder);
    }
    add_totals(env, recorder);
    runtime::node_barrier(env, params.key("barrier/litmus-done"), kLongestRun);
  }

 private:
  void run_test(Node& node, const Params& params, const Test& test, const Layout& layout,
                std::size_t number, Recorder& recorder) {
    std::vector<std::unique_ptr<Agent>> agents;
    for (std::size_t i = 0; i < layout.agents.size(); ++i) {
      if (layout.agents[i].node == node.env().node())
        agents.push_back(std::make_unique<Agent>(node, test.program, layout, i, number));
    }
    std::vector<std::unique_ptr<Thread>> threads;
    FailGuard guard(node);
    for (std::size_t i = 1; i < agents.size(); ++i) {
      threads.push_back(node.env().spawn("litmus" + std::to_string(i), [&node, &agents, i] {
        FailGuard own(node);
        while (agents[i]->take_part()) continue;
        own.pass();
      }));
    }
    if (node.env().node() == 0) {
      Collector collector(node, test.program, layout, *agents[0], number);
      collector.run(static_cast<std::uint64_t>(params.integer("rounds")));
      add_rows(collector, test, recorder);
    } else {
      while (agents[0]->take_part()) continue;
    }
    guard.pass();
    for (const auto& thread : threads) thread->join();
  }

  void add_rows(const Collector& collector, const Test& test, Recorder& recorder) {
    rounds_ += collector.rounds();
    for (const Count& count :
         collector.counts(test.levels.empty() ? classify(test.program) : test.levels)) {
      recorder.add("outcome|" + test.name + '|' + to_string(count.level) + '|' +
                       test.program.text(count.outcome),
                   "count", static_cast<double>(count.seen));
      if (count.level == Level::kForbidden) forbidden_ += count.seen;
      if (count.level == Level::kLate && count.seen == 0) ++unseen_;
    }
  }

  void add_totals(Env& env, Recorder& recorder) const {
    if (env.node() != 0) return;
    recorder.add("rounds", "count", static_cast<double>(rounds_));
    recorder.add("forbidden", "count", static_cast<double>(forbidden_));
    recorder.add("unseen", "count", static_cast<double>(unseen_));
  }

  std::uint64_t rounds_ = 0, forbidden_ = 0, unseen_ = 0;
};

}  // namespace

std::unique_ptr<Workload> make_litmus() { return std::make_unique<Litmus>(); }

}  // namespace pyrdma::measure
