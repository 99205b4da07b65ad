// krcore_transfer: a function hands a payload to a function that starts on another node when the
// first one ends (ServerlessBench's test case 5, section 5.3.2, figure 12b). Both set up RDMA for
// themselves, and the second one reads the payload. The start of the container is left out.
#include <cstring>

#include "runtime/handshake.h"
#include "systems/krcore/workloads/options.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

constexpr NodeId kSender = 0, kReceiver = 1;

class TransferLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    using Text = std::string;
    static const std::vector<measure::ParameterSpec> specs = with_service_parameters({
        {"system",
         Text("krcore"),
         "",
         "virtual queue pairs, or those of the device",
         0,
         0,
         {"krcore", "verbs"}},
        {"payload", Int{1024}, "bytes", "that is handed over", 8, 1 << 20},
        {"rounds", Int{8}, "count", "pairs of functions, one after another", 1, 10'000},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    check_nodes(env, params, 1);
    std::unique_ptr<Service> service;
    if (params.text("system") == "krcore")
      service = std::make_unique<Service>(env, service_options(params, env.nodes()));
    recorder.prepare_threads(env.node() <= kReceiver ? 1 : 0);
    for (std::uint32_t round = 0; round < params.count("rounds"); ++round) {
      const std::string name = params.key("krcore/transfer/" + std::to_string(round));
      runtime::node_barrier(env, name + "/begin");
      // No function finds what an earlier one has left in a cache.
      if (service != nullptr) service->clear_caches();
      if (env.node() > kReceiver) continue;
      const Time took = service != nullptr ? through_service(*service, params, name)
                                           : through_device(env, params, name);
      recorder.thread(0).histogram(env.node() == kSender ? "sender" : "receiver").record(took);
    }
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

 private:
  static void fill(std::byte* at, std::uint32_t bytes) { std::memset(at, 0x5a, bytes); }
  static void check(const std::byte* at, std::uint32_t bytes) {
    for (std::uint32_t i = 0; i < bytes; ++i)
      if (at[i] != std::byte{0x5a})
        throw Error(ErrorCode::kInternal, "krcore: the payload arrived with other bytes");
  }
  /// The sender's function has ended, so that of the receiver starts.
  static void hand_over(Env& env, const std::string& name, const fabric::RemoteRegion& payload) {
    env.device().rendezvous().publish_value(name + "/payload", payload);
  }
  static fabric::RemoteRegion await_payload(Env& env, const std::string& name) {
    return env.device().rendezvous().await_value<fabric::RemoteRegion>(
        name + "/payload", env.now() + runtime::kSetupTimeout);
  }
  // What the sender owns lives until the receiver has read.
  static void await_end(Env& env, const std::string& name) {
    env.device().rendezvous().await(name + "/read", env.now() + runtime::kSetupTimeout);
  }
  static void end(Env& env, const std::string& name) {
    env.device().rendezvous().publish_value(name + "/read", std::uint8_t{1});
  }

  static Time through_service(Service& service, const measure::Params& params,
                              const std::string& name) {
    Env& env = service.env();
    const std::uint32_t bytes = params.count("payload");
    if (env.node() == kSender) {
      const Time begin = env.now();
      App app(service);
      const Registration own = app.reg_mr(bytes, fabric::kRemoteRead);
      fill(own.data, bytes);
      const Time took = env.now() - begin;
      hand_over(env, name, {own.addr, own.bytes, own.key, env.node()});
      await_end(env, name);
      return took;
    }
    const fabric::RemoteRegion payload = await_payload(env, name);
    const Time begin = env.now();
    App app(service);
    const Registration own = app.reg_mr(bytes, fabric::kLocalWrite);
    const Queue queue = app.create_queue();
    app.connect(queue, kSender, 1);
    const fabric::Sge sge{own.addr, bytes, own.key};
    fabric::WorkRequest read;
    read.sges = &sge;
    read.sge_count = 1;
    read.opcode = fabric::Opcode::kRead;
    read.remote_addr = payload.addr;
    read.rkey = payload.rkey;
    fabric::Completion done;
    std::size_t taken = 0;
    const PushResult pushed = app.push(queue, {&read, 1}, {&done, 1}, &taken);
    if (pushed.error != fabric::PostError::kNone || done.status != fabric::Status::kSuccess)
      throw Error(ErrorCode::kInternal, "krcore: the payload could not be read");
    const Time took = env.now() - begin;
    check(own.data, bytes);
    end(env, name);
    return took;
  }

  // Each function is a process that opens the device.
  static Time through_device(Env& env, const measure::Params& params, const std::string& name) {
    const std::uint32_t bytes = params.count("payload");
    const bool is_sender = env.node() == kSender;
    fabric::RemoteRegion payload;
    if (!is_sender) payload = await_payload(env, name);
    const Time begin = env.now();
    fabric::Device& device = env.device();
    device.open();
    const auto domain = device.create_protection_domain();
    const auto memory = device.allocate(*domain, bytes, fabric::kLocalWrite | fabric::kRemoteRead);
    const auto completions = device.create_completion_queue(16);
    fabric::QpOptions options;
    options.send_entries = options.receive_entries = 16;
    const auto qp = device.create_queue_pair(*domain, *completions, *completions, options);
    runtime::Handshake handshake(env, name, is_sender ? kReceiver : kSender);
    handshake.add(*qp);
    handshake.offer();
    if (is_sender) {
      fill(memory->data(), bytes);
      const Time took = env.now() - begin;
      hand_over(env, name, memory->remote());
      handshake.await(env.now() + runtime::kSetupTimeout);
      handshake.connect();
      env.device().rendezvous().publish_value(name + "/connected", std::uint8_t{1});
      await_end(env, name);
      return took;
    }
    handshake.await(env.now() + runtime::kSetupTimeout);
    handshake.connect();
    device.rendezvous().await(name + "/connected", env.now() + runtime::kSetupTimeout);
    if (!qp->read(memory->sge(0, bytes), payload, 0, 1))
      throw Error(ErrorCode::kInternal, "krcore: the payload's READ could not be posted");
    fabric::Completion done;
    env.poll_until(
        [&] {
          return completions->poll({&done, 1}) == 1;
        },
        kForever, &completions->watch());
    if (done.status != fabric::Status::kSuccess)
      throw Error(ErrorCode::kInternal, "krcore: the payload could not be read");
    const Time took = env.now() - begin;
    check(memory->data(), bytes);
    end(env, name);
    return took;
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_transfer() { return std::make_unique<TransferLoad>(); }

}  // namespace pyrdma::krcore
