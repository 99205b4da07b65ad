// krcore_ring: an application behind a daemon's ring reads another node's memory in batches, or
// makes calls that do nothing, for comparison.
#include <unistd.h>

#include <filesystem>

#include "systems/krcore/ring/attachment.h"
#include "systems/krcore/ring/daemon.h"
#include "systems/krcore/workloads/options.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

constexpr std::uint64_t kBytes = 1 << 20;  // of the memory that is read

/// A private folder for the daemon's socket.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "pyrdma-ring-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Error(ErrorCode::kUnavailable, "krcore: no folder can be made at " + name);
    name_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(name_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

class RingLoad final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    using Int = std::int64_t;
    using Text = std::string;
    static const std::vector<measure::ParameterSpec> specs = with_service_parameters({
        {"op", Text("read"), "", "READs, or calls that do nothing", 0, 0, {"read", "nothing"}},
        {"batch", Int{64}, "count", "slots of a call", 1, ring::kRequests},
        {"size", Int{8}, "bytes", "of a READ", 1, 65536},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    measure::check_interval(params);
    check_nodes(env, params, 1);
    Service service(env, service_options(params, env.nodes()));
    App app(service);
    if (env.node() == 0)
      share_region(env, params.key("krcore/ring"), app.reg_mr(kBytes, fabric::kRemoteRead));
    recorder.prepare_threads(env.node() == 1 ? 1 : 0);
    if (env.node() == 1) {
      const Folder folder;
      ring::Daemon daemon(service, folder.name());
      ring::Attachment attachment(daemon.path());
      use(attachment.application(), params, shared_region(env, params.key("krcore/ring")),
          recorder.thread(0));
    }
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

 private:
  static void use(ring::Application& app, const measure::Params& params,
                  const fabric::RemoteRegion& there, measure::ThreadRecorder& recorder) {
    const std::uint32_t batch = params.count("batch"), size = params.count("size");
    const bool reads = params.text("op") == "read";
    const Registration own = app.reg_mr(std::uint64_t{batch} * size);
    VqpOptions options;
    options.send_entries = 2 * batch;
    const Queue queue = app.create_queue(options);
    app.connect(queue, 0, 1);
    std::vector<fabric::Sge> sges(batch);
    std::vector<fabric::WorkRequest> list(batch);
    for (std::uint32_t i = 0; i < batch; ++i) {
      sges[i] = {own.addr + std::uint64_t{i} * size, size, own.key};
      list[i].sges = &sges[i];
      list[i].sge_count = 1;
      list[i].opcode = fabric::Opcode::kRead;
      list[i].flags = i + 1 == batch ? fabric::kSignaled : 0;
      list[i].remote_addr = there.addr + std::uint64_t{i} * size % (kBytes - size);
      list[i].rkey = there.rkey;
    }
    measure::Histogram& latency = recorder.histogram("call");
    measure::Interval interval(app.env().now(), params);
    for (Time begin = app.env().now(); !interval.over(begin);) {
      if (reads) {
        fabric::Completion done;
        const PushResult pushed = app.push(queue, list);
        if (pushed.error != fabric::PostError::kNone ||
            app.wait(queue, {&done, 1}, begin + 10 * kSecond) != 1 ||
            done.status != fabric::Status::kSuccess)
          throw Error(ErrorCode::kInternal, "krcore: a batch of READs failed");
      } else {
        app.nothing(batch);
      }
      const Time end = app.env().now();
      for (std::uint32_t i = 0; i < batch; ++i)
        if (interval.count(end) && i == 0) latency.record(end - begin);
      begin = end;
    }
    interval.add_rates(recorder);
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_ring() { return std::make_unique<RingLoad>(); }

}  // namespace pyrdma::krcore
