// Runs a workload in the simulator so that a tracer of memory accesses (valgrind's lackey) sees
// which instructions belong to which step of the protocol. `pyrdma calibrate scopes` runs it and
// reads the trace.
//
// The simulator is the null fabric of the measurement. A decorated Env and a decorated Device read
// marks when control passes between the protocol and the simulator, so instructions of the
// simulator do not count. A mark is a byte whose address the trace shows. The run does not depend
// on the table of costs: each step takes an equal time.
//
// trace_scopes PROFILE NODES CORES WORKLOAD [KEY=VALUE...]
// PROFILE is a file with a parameter and its value on each line. Without arguments the program only
// prints the addresses of the marks.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include "base/error.h"
#include "env/scope.h"
#include "fabric/fabric.h"
#include "fabric/sim/cluster.h"
#include "runtime/scopes.h"
#include "systems/system.h"

namespace pyrdma::calibration {
namespace {

struct Marks {
  volatile char world = 0, protocol = 0, thread = 0, region = 0, footprint = 0, used = 0;
} marks;

/// The tracer does not show a load whose result has no use.
inline void touch(const volatile char& at) { marks.used = at; }
/// Control passes to the simulator.
inline void to_world() { touch(marks.world); }
/// Control passes to the protocol. The address on the stack tells its thread.
inline void to_protocol(const volatile char& mark = marks.protocol) {
  volatile char here = 0;
  touch(mark);
  touch(here);
}
/// The same on the new stack of a thread.
inline void begin_thread() { to_protocol(marks.thread); }
/// The next two loads give the first and the last byte.
inline void announce(const volatile char& kind, const void* data, std::uint64_t bytes) {
  if (data == nullptr || bytes == 0) return;
  const auto* at = static_cast<const volatile char*>(data);
  touch(kind);
  touch(at[0]);
  touch(at[bytes - 1]);
}

struct World {
  World() { to_world(); }
  ~World() { to_protocol(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
};

class TracedQueue final : public fabric::CompletionQueue {
 public:
  explicit TracedQueue(std::unique_ptr<fabric::CompletionQueue> inner) : inner_(std::move(inner)) {}
  std::size_t poll(std::span<fabric::Completion> out) override {
    const World world;
    return inner_->poll(out);
  }
  std::uint32_t entries() const override { return inner_->entries(); }
  bool overrun() const override {
    const World world;
    return inner_->overrun();
  }
  Watch& watch() override { return inner_->watch(); }
  fabric::CompletionQueue& inner() { return *inner_; }

 private:
  std::unique_ptr<fabric::CompletionQueue> inner_;
};

class TracedQueuePair final : public fabric::QueuePair {
 public:
  explicit TracedQueuePair(std::unique_ptr<fabric::QueuePair> inner) : inner_(std::move(inner)) {}
  fabric::Transport transport() const override { return inner_->transport(); }
  std::uint32_t qp_num() const override { return inner_->qp_num(); }
  fabric::QpState state() const override { return inner_->state(); }
  fabric::QpAddress address() const override { return inner_->address(); }
  fabric::PostResult post(std::span<const fabric::WorkRequest> requests) override {
    const World world;
    return inner_->post(requests);
  }
  fabric::PostResult post_receive(std::span<const fabric::ReceiveRequest> requests) override {
    const World world;
    return inner_->post_receive(requests);
  }
  void modify(fabric::QpState next, const fabric::QpAddress* peer) override {
    const World world;
    inner_->modify(next, peer);
  }

 private:
  std::unique_ptr<fabric::QueuePair> inner_;
};

/// A wait for a peer's value lets other threads run.
class TracedRendezvous final : public fabric::Rendezvous {
 public:
  explicit TracedRendezvous(fabric::Rendezvous& inner) : inner_(inner) {}
  void publish(std::string_view key, std::span<const std::byte> value) override {
    const World world;
    inner_.publish(key, value);
  }
  std::optional<std::vector<std::byte>> find(std::string_view key) override {
    const World world;
    return inner_.find(key);
  }
  std::vector<std::byte> await(std::string_view key, Time deadline) override {
    const World world;
    return inner_.await(key, deadline);
  }

 private:
  fabric::Rendezvous& inner_;
};

class TracedDevice final : public fabric::Device {
 public:
  explicit TracedDevice(fabric::Device& inner) : inner_(inner), rendezvous_(inner.rendezvous()) {}
  const fabric::Capabilities& capabilities() const override { return inner_.capabilities(); }
  const std::string& name() const override { return inner_.name(); }
  void open() override {
    const World world;
    inner_.open();
  }
  fabric::Rendezvous& rendezvous() override { return rendezvous_; }
  std::unique_ptr<fabric::ProtectionDomain> create_protection_domain() override {
    const World world;
    return inner_.create_protection_domain();
  }
  std::unique_ptr<fabric::MemoryRegion> allocate(fabric::ProtectionDomain& pd, std::size_t bytes,
                                                 std::uint32_t access) override {
    const World world;
    return known(inner_.allocate(pd, bytes, access));
  }
  std::unique_ptr<fabric::MemoryRegion> register_memory(fabric::ProtectionDomain& pd, void* data,
                                                        std::size_t bytes,
                                                        std::uint32_t access) override {
    const World world;
    return known(inner_.register_memory(pd, data, bytes, access));
  }
  std::unique_ptr<fabric::MemoryRegion> allocate_device_memory(fabric::ProtectionDomain& pd,
                                                               std::size_t bytes,
                                                               std::uint32_t access) override {
    const World world;
    return inner_.allocate_device_memory(pd, bytes, access);
  }
  std::unique_ptr<fabric::CompletionQueue> create_completion_queue(std::uint32_t entries) override {
    const World world;
    return std::make_unique<TracedQueue>(inner_.create_completion_queue(entries));
  }
  std::unique_ptr<fabric::SharedReceiveQueue> create_shared_receive_queue(
      fabric::ProtectionDomain& pd, std::uint32_t entries, std::uint32_t max_sges) override {
    const World world;
    return inner_.create_shared_receive_queue(pd, entries, max_sges);
  }
  std::unique_ptr<fabric::QueuePair> create_queue_pair(
      fabric::ProtectionDomain& pd, fabric::CompletionQueue& sends,
      fabric::CompletionQueue& receives, const fabric::QpOptions& options,
      fabric::SharedReceiveQueue* shared) override {
    const World world;
    return std::make_unique<TracedQueuePair>(
        inner_.create_queue_pair(pd, static_cast<TracedQueue&>(sends).inner(),
                                 static_cast<TracedQueue&>(receives).inner(), options, shared));
  }
  std::unique_ptr<fabric::AddressHandle> create_address_handle(
      fabric::ProtectionDomain& pd, const fabric::QpAddress& peer,
      const fabric::PathOptions& path) override {
    const World world;
    return inner_.create_address_handle(pd, peer, path);
  }

 private:
  static std::unique_ptr<fabric::MemoryRegion> known(std::unique_ptr<fabric::MemoryRegion> region) {
    announce(marks.region, region->data(), region->size());
    return region;
  }
  fabric::Device& inner_;
  TracedRendezvous rendezvous_;
};

class TracedEnv final : public Env {
 public:
  TracedEnv(Env& inner, fabric::Device& device) : Env(true), inner_(inner), device_(device) {}
  NodeId node() const override { return inner_.node(); }
  NodeId nodes() const override { return inner_.nodes(); }
  Time now() override {
    const World world;
    return inner_.now();
  }
  bool poll_until_ref(FunctionRef<bool()> ready, Time deadline, Watch* only) override {
    const World world;
    return inner_.poll_until(
        [ready] {
          to_protocol();
          const bool done = ready();
          to_world();
          return done;
        },
        deadline, only);
  }
  void notify(Watch& watch) override {
    const World world;
    inner_.notify(watch);
  }
  void sleep_until(Time t) override {
    const World world;
    inner_.sleep_until(t);
  }
  void work(Time duration) override {
    const World world;
    inner_.work(duration);
  }
  Rng rng(std::string_view purpose) override {
    const World world;
    return inner_.rng(purpose);
  }
  fabric::Device& device() override { return device_; }
  Storage& storage() override { return inner_.storage(); }
  Trace& trace() override { return inner_.trace(); }

 protected:
  std::unique_ptr<Thread> spawn_on(std::uint32_t core, std::string name,
                                   std::function<void()> body) override {
    const World world;
    const auto traced = [body = std::move(body)] {
      begin_thread();
      body();
      to_world();
    };
    return std::make_unique<TracedThread>(inner_.spawn(std::move(name), traced, core));
  }
  void catch_up_model() override {
    const World world;
    inner_.catch_up();
  }
  void charge_model(Cost cost, std::uint64_t count) override {
    const World world;
    inner_.charge(cost, count);
  }
  void charge_copy_model(std::size_t bytes, const Footprint* of) override {
    const World world;
    inner_.charge_copy(bytes, of);
  }
  void charge_walk_model(const Footprint& of, const void* at) override {
    const World world;
    inner_.charge_walk(of, at);
  }
  Env* enter_model(const CpuScope& step) override {
    touch(step.begin_mark);
    const World world;
    inner_.charge(Cost::kAtomic, 3);  // the same for all, whatever the table says
    return this;
  }
  void leave_model(const CpuScope& step) override { touch(step.end_mark); }
  void footprint_model(const void* data, std::uint64_t bytes, bool exists) override {
    if (exists) announce(marks.footprint, data, bytes);
  }

 private:
  class TracedThread final : public Thread {
   public:
    explicit TracedThread(std::unique_ptr<Thread> inner) : inner_(std::move(inner)) {}
    ~TracedThread() override {
      const World world;
      inner_ = nullptr;
    }
    void join() override {
      const World world;
      inner_->join();
    }

   private:
    std::unique_ptr<Thread> inner_;
  };
  Env& inner_;
  fabric::Device& device_;
};

constexpr CpuScope inner_step{"calibration/inner"}, outer_step{"calibration/outer"},
    call_step{"calibration/call"};
constexpr const CpuScope* kOwnSteps[] = {&inner_step, &outer_step, &call_step};

/// Takes empty steps, which tell the instructions of the marks themselves.
void take_empty_steps(Env& env) {
  for (int i = 0; i < 10; ++i) {
    const Scope outer(env, outer_step);
    const Scope inner(env, inner_step);
  }
  for (int i = 0; i < 10; ++i) {
    const Scope call(env, call_step);
    env.charge(Cost::kAtomic);
  }
}

void print_marks() {
  const auto print = [](const std::string& name, const volatile char& at) {
    std::printf("%s %p\n", name.c_str(), const_cast<const char*>(&at));
  };
  print("world", marks.world);
  print("protocol", marks.protocol);
  print("thread", marks.thread);
  print("region", marks.region);
  print("footprint", marks.footprint);
  const auto print_scopes = [&](std::span<const CpuScope* const> scopes) {
    for (const CpuScope* scope : scopes) {
      print("begin " + std::string(scope->name), scope->begin_mark);
      print("end " + std::string(scope->name), scope->end_mark);
    }
  };
  print_scopes(kOwnSteps);
  print_scopes(runtime::scope::all);
  for (const systems::System& system : systems::all()) print_scopes(system.scopes);
  std::fflush(stdout);
}

std::map<std::string, double> read_profile(const char* path) {
  std::map<std::string, double> values;
  std::ifstream file(path);
  std::string key;
  double value = 0;
  while (file >> key >> value) values[key] = value;
  return values;
}

/// Reads KEY=VALUE as the type of the parameter's default.
measure::ParamMap read_params(std::span<const measure::ParameterSpec> specs, int count,
                              char** texts) {
  measure::ParamMap params{{"run", std::int64_t{1}}};
  for (int i = 0; i < count; ++i) {
    const std::string text = texts[i];
    const std::string key = text.substr(0, text.find('=')), value = text.substr(key.size() + 1);
    params[key] = value;
    for (const measure::ParameterSpec& spec : specs) {
      if (spec.name != key) continue;
      if (std::holds_alternative<std::int64_t>(spec.fallback))
        params[key] = std::int64_t{std::stoll(value)};
      if (std::holds_alternative<double>(spec.fallback)) params[key] = std::stod(value);
    }
  }
  return params;
}

void run(int count, char** arguments) {
  if (count == 1) return print_marks();
  if (count < 5) {
    throw Error(ErrorCode::kInvalidArgument,
                "usage: trace_scopes PROFILE NODES CORES WORKLOAD [KEY=VALUE...]");
  }
  fabric::sim::SimOptions options;
  options.profile = fabric::sim::SimProfile::from_values(read_profile(arguments[1]));
  options.nodes = static_cast<std::uint32_t>(std::stoul(arguments[2]));
  options.cores_per_node = static_cast<std::uint32_t>(std::stoul(arguments[3]));
  const std::string name = arguments[4];
  const auto specs = systems::workloads().make(name);
  const measure::Params params = measure::Params::resolve(
      specs->parameters(), read_params(specs->parameters(), count - 5, arguments + 5), name);
  std::vector<std::unique_ptr<measure::Workload>> workloads;
  std::vector<measure::Recorder> recorders(options.nodes);
  for (NodeId node = 0; node < options.nodes; ++node)
    workloads.push_back(systems::workloads().make(name));
  fabric::sim::SimCluster cluster(options);
  cluster.run([&](Env& env) {
    TracedDevice device(env.device());
    TracedEnv traced(env, device);
    begin_thread();
    take_empty_steps(traced);
    workloads[env.node()]->run(traced, params, recorders[env.node()]);
    to_world();
  });
}

}  // namespace
}  // namespace pyrdma::calibration

int main(int count, char** arguments) {
  try {
    pyrdma::calibration::run(count, arguments);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "trace_scopes: " << error.what() << '\n';
    return 1;
  }
}
