// krcore_echo: clients send messages to a server's threads, which send them back (section 5.2,
// figures 9b and 11). `system` verbs runs the same loops on queue pairs of the device.
#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "runtime/exchange.h"
#include "systems/krcore/workloads/common_start.h"
#include "systems/krcore/workloads/options.h"
#include "systems/krcore/workloads/workloads.h"

namespace pyrdma::krcore {

namespace {

using fabric::Completion;
using fabric::Opcode;

void check_done(const Completion& done) {
  if (done.status == fabric::Status::kSuccess) return;
  throw Error(ErrorCode::kInternal,
              std::string("krcore: a message ended as ") + fabric::to_string(done.status));
}

/// One end of a raw connection, with its buffers.
struct RawEnd {
  std::unique_ptr<fabric::CompletionQueue> sends;
  std::unique_ptr<fabric::QueuePair> qp;
};

class EchoLoad final : public measure::Workload {
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
        {"transport", Text("dc"), "", "of the physical queue pairs", 0, 0, {"dc", "rc"}},
        {"size", Int{8}, "bytes", "of a message", 1, 1 << 26},
        {"batch", Int{1}, "count", "messages that a client sends before it waits for all", 1, 64},
        {"clients", Int{1}, "count", "threads, spread over all nodes except node 0, the server", 1,
         1 << 16},
        {"server_threads", Int{24}, "count", "of node 0", 1, 256},
    });
    return specs;
  }

  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    measure::check_interval(params);
    check_nodes(env, params, 1);
    if (params.text("system") == "verbs")
      run_verbs(env, params, recorder);
    else
      run_service(env, params, recorder);
  }

 private:
  struct Load {
    Load(Env& env, const measure::Params& params)
        : size(params.count("size")),
          batch(params.count("batch")),
          server_threads(std::min(params.count("server_threads"), params.count("clients"))),
          clients(params.count("clients")),
          spread(env, clients, 1) {}
    /// Clients of a server's thread.
    std::uint32_t clients_of(std::uint32_t thread) const {
      return clients / server_threads + (thread < clients % server_threads ? 1 : 0);
    }
    std::uint32_t size, batch, server_threads, clients;
    Spread spread;
  };

  // ---- through the service ----

  static void run_service(Env& env, const measure::Params& params, measure::Recorder& recorder) {
    const Load load(env, params);
    Options options = service_options(params, env.nodes());
    const std::uint32_t buffers = 2 * load.batch * load.clients / load.server_threads;
    options.receive_buffers = std::clamp(4 * buffers, 128U, 4096U);
    options.arena_bytes = std::max<std::uint64_t>(
        options.arena_bytes, std::uint64_t{4} * (load.size + 64) * load.batch * load.clients);
    Service service(env, options);
    std::atomic<bool> stops{false};
    CommonStart start(env, params, load.spread.count);
    if (env.node() == 0) {
      std::atomic<std::uint32_t> bound{0};
      std::vector<std::unique_ptr<Thread>> threads;
      for (std::uint32_t i = 0; i < load.server_threads; ++i) {
        threads.push_back(env.spawn("server/" + std::to_string(i),
                                    [&, i] { serve(service, load, i, bound, stops); }));
      }
      // A message to a port that nobody has bound is refused. A thread that failed binds none.
      const Time end = env.now() + runtime::kSetupTimeout;
      while (bound.load(std::memory_order_acquire) < load.server_threads && env.now() < end)
        env.sleep_until(env.now() + 10 * kMicrosecond);
      runtime::node_barrier(env, params.key("krcore/begin"));
      start.meet();
      runtime::node_barrier(env, params.key("krcore/stopped"), 600 * kSecond);
      stops.store(true);
      for (const auto& thread : threads) thread->join();
    } else {
      runtime::node_barrier(env, params.key("krcore/begin"));
      recorder.prepare_threads(load.spread.count);
      start.run([&](std::uint32_t i) {
        client(service, params, load, load.spread.client(env.node(), i), recorder.thread(i), start,
               i);
      });
      runtime::node_barrier(env, params.key("krcore/stopped"), 600 * kSecond);
    }
    add_counters(recorder, service);
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

  static void serve(Service& service, const Load& load, std::uint32_t thread,
                    std::atomic<std::uint32_t>& bound, const std::atomic<bool>& stops) {
    Env& env = service.env();
    App app(service);
    const std::uint32_t slots = 2 * load.batch * load.clients_of(thread) + 2;
    const Registration own = app.reg_mr(std::uint64_t{slots} * load.size);
    VqpOptions options;
    options.receive_entries = slots;
    options.send_entries = 2 * load.batch + 2;
    const Queue inbox = app.create_queue(options);
    const auto receive = [&](std::uint64_t slot) {
      const fabric::Sge sge{own.addr + slot * load.size, load.size, own.key};
      const fabric::ReceiveRequest request{slot, &sge, 1};
      service.post_receive(inbox, {&request, 1});
    };
    for (std::uint32_t slot = 0; slot < slots; ++slot) receive(slot);
    app.bind(inbox, 1 + thread);
    bound.fetch_add(1, std::memory_order_release);
    std::array<Message, 16> messages;
    std::map<std::uint32_t, std::uint32_t> unsignaled;  // of each client
    while (!stops.load(std::memory_order_acquire)) {
      const std::size_t count = app.wait_messages(inbox, messages, env.now() + kMillisecond);
      // The answers of a round go out in one call, and so do the buffers of the round before.
      if (count != 0) env.charge(Cost::kSystemCall);
      for (const Message& message : std::span(messages).first(count)) {
        const fabric::Sge sge{own.addr + message.wr_id * load.size, message.bytes, own.key};
        fabric::WorkRequest answer;
        answer.sges = &sge;
        answer.sge_count = 1;
        answer.opcode = Opcode::kSend;
        std::uint32_t& silent = unsignaled[message.reply.number()];
        answer.flags = ++silent >= load.batch ? fabric::kSignaled : 0;
        PushResult pushed;
        Completion done;
        env.poll_until(
            [&] {
              pushed = service.push(message.reply, {&answer, 1});
              // Answers of earlier rounds may be under way still.
              if (pushed.error == fabric::PostError::kQueueFull)
                service.poll(message.reply, {&done, 1});
              return pushed.error != fabric::PostError::kQueueFull;
            },
            kForever);
        if (pushed.error != fabric::PostError::kNone)
          throw Error(ErrorCode::kInternal, "krcore: an answer was refused");
        if (answer.flags != 0) {
          silent = 0;
          service.poll(message.reply, {&done, 1});
        }
        receive(message.wr_id);
      }
    }
  }

  static void client(Service& service, const measure::Params& params, const Load& load,
                     std::uint32_t number, measure::ThreadRecorder& recorder, CommonStart& start,
                     std::uint32_t index) {
    Env& env = service.env();
    App app(service);
    if (params.text("transport") == "rc") await_reliable(service, 0);
    const std::uint32_t slots = 2 * load.batch;
    const Registration own = app.reg_mr(std::uint64_t{slots + 1} * load.size);
    VqpOptions options;
    options.send_entries = 2 * load.batch + 2;
    options.receive_entries = slots;
    const Queue queue = app.create_queue(options);
    app.connect(queue, 0, 1 + number % load.server_threads);
    const auto receive = [&](std::uint64_t slot) {
      const fabric::Sge sge{own.addr + (slot + 1) * load.size, load.size, own.key};
      const fabric::ReceiveRequest request{slot, &sge, 1};
      service.post_receive(queue, {&request, 1});
    };
    for (std::uint32_t slot = 0; slot < slots; ++slot) receive(slot);
    const fabric::Sge sge{own.addr, load.size, own.key};
    std::vector<fabric::WorkRequest> list(load.batch);
    for (std::uint32_t i = 0; i < load.batch; ++i) {
      list[i].sges = &sge;
      list[i].sge_count = 1;
      list[i].opcode = Opcode::kSend;
      list[i].flags = i + 1 == load.batch ? fabric::kSignaled : 0;
    }
    measure::Histogram& latency = recorder.histogram("echo");
    std::array<Message, 64> messages;
    const auto round = [&] {
      if (app.push(queue, list).error != fabric::PostError::kNone)
        throw Error(ErrorCode::kInternal, "krcore: a message was refused");
      // One call waits for all answers.
      env.charge(Cost::kSystemCall);
      std::uint32_t answers = 0;
      env.poll_until(
          [&] {
            const std::size_t count =
                service.pop_messages(queue, std::span(messages).first(load.batch - answers), false);
            for (const Message& message : std::span(messages).first(count)) receive(message.wr_id);
            answers += static_cast<std::uint32_t>(count);
            if (count == 0 && service.state(queue) == VqpState::kError)
              throw Error(ErrorCode::kUnavailable, "krcore: the echo's server takes no messages");
            return answers == load.batch;
          },
          kForever);
      Completion done;
      env.poll_until([&] { return service.poll(queue, {&done, 1}) == 1; }, kForever);
      check_done(done);
    };
    for (int i = 0; i < 40; ++i) round();  // the queue pairs have moved to their cores
    if (!start.wait(index)) return;
    measure::Interval interval(env.now(), params);
    for (Time begin = env.now(); !interval.over(begin);) {
      round();
      const Time end = env.now();
      for (std::uint32_t i = 0; i < load.batch; ++i)
        if (interval.count(end)) latency.record(end - begin);
      begin = end;
    }
    interval.add_rates(recorder);
  }

  // ---- on the device ----

  static std::string raw_key(const measure::Params& params, const char* side,
                             std::uint32_t client) {
    return params.key(std::string("krcore/raw/") + side + "/" + std::to_string(client));
  }

  static RawEnd make_raw(Env& env, fabric::ProtectionDomain& domain, const Load& load,
                         fabric::CompletionQueue& receives) {
    RawEnd end;
    end.sends = env.device().create_completion_queue(2 * load.batch + 2);
    fabric::QpOptions options;
    options.send_entries = options.receive_entries = 2 * load.batch + 2;
    options.max_sges = 1;
    options.max_inline = load.size <= env.device().capabilities().max_inline ? load.size : 0;
    end.qp = env.device().create_queue_pair(domain, *end.sends, receives, options);
    return end;
  }

  static void run_verbs(Env& env, const measure::Params& params, measure::Recorder& recorder) {
    const Load load(env, params);
    env.device().open();
    const auto domain = env.device().create_protection_domain();
    std::atomic<bool> stops{false};
    CommonStart start(env, params, load.spread.count);
    if (env.node() == 0) {
      std::vector<std::unique_ptr<Thread>> threads;
      for (std::uint32_t i = 0; i < load.server_threads; ++i) {
        threads.push_back(env.spawn("server/" + std::to_string(i),
                                    [&, i] { serve_raw(env, params, *domain, load, i, stops); }));
      }
      start.meet();
      runtime::node_barrier(env, params.key("krcore/stopped"), 600 * kSecond);
      stops.store(true);
      for (const auto& thread : threads) thread->join();
    } else {
      recorder.prepare_threads(load.spread.count);
      start.run([&](std::uint32_t i) {
        client_raw(env, params, *domain, load, load.spread.client(env.node(), i),
                   recorder.thread(i), start, i);
      });
      runtime::node_barrier(env, params.key("krcore/stopped"), 600 * kSecond);
    }
    runtime::node_barrier(env, params.key("krcore/done"), 600 * kSecond);
  }

  static void serve_raw(Env& env, const measure::Params& params, fabric::ProtectionDomain& domain,
                        const Load& load, std::uint32_t thread, const std::atomic<bool>& stops) {
    const std::uint32_t clients = load.clients_of(thread);
    const std::uint32_t slots = 2 * load.batch;
    const auto memory = env.device().allocate(domain, std::size_t{clients} * slots * load.size);
    const auto receives = env.device().create_completion_queue(clients * slots + 2);
    std::vector<RawEnd> ends;
    const auto receive = [&](std::uint64_t place) {
      ends[place / slots].qp->receive(memory->sge(place * load.size, load.size), place);
    };
    for (std::uint32_t i = 0; i < clients; ++i) {
      ends.push_back(make_raw(env, domain, load, *receives));
      const std::uint32_t client = i * load.server_threads + thread;
      env.device().rendezvous().publish_value(raw_key(params, "server", client),
                                              ends.back().qp->address());
      ends.back().qp->connect(env.device().rendezvous().await_value<fabric::QpAddress>(
          raw_key(params, "client", client), env.now() + runtime::kSetupTimeout));
      for (std::uint32_t slot = 0; slot < slots; ++slot) receive(std::uint64_t{i} * slots + slot);
      env.device().rendezvous().publish_value(raw_key(params, "ready", client), std::uint8_t{1});
    }
    std::array<Completion, 16> arrived;
    std::vector<std::uint32_t> unsignaled(clients);
    while (!stops.load(std::memory_order_acquire)) {
      std::size_t count = 0;
      env.poll_until(
          [&] {
            count = receives->poll(arrived);
            return count != 0;
          },
          env.now() + kMillisecond, &receives->watch());
      for (const Completion& wc : std::span(arrived).first(count)) {
        RawEnd& end = ends[wc.wr_id / slots];
        std::uint32_t& silent = unsignaled[wc.wr_id / slots];
        auto flags = static_cast<std::uint8_t>(++silent >= load.batch ? fabric::kSignaled : 0);
        if (load.size <= env.device().capabilities().max_inline) flags |= fabric::kInline;
        end.qp->send(memory->sge(wc.wr_id * load.size, wc.byte_count), 0, flags);
        if ((flags & fabric::kSignaled) != 0) {
          silent = 0;
          Completion done;
          end.sends->poll({&done, 1});
        }
        receive(wc.wr_id);
      }
    }
  }

  static void client_raw(Env& env, const measure::Params& params, fabric::ProtectionDomain& domain,
                         const Load& load, std::uint32_t number, measure::ThreadRecorder& recorder,
                         CommonStart& start, std::uint32_t index) {
    const std::uint32_t slots = 2 * load.batch;
    const auto memory = env.device().allocate(domain, std::size_t{slots + 1} * load.size);
    const auto receives = env.device().create_completion_queue(slots + 2);
    RawEnd end = make_raw(env, domain, load, *receives);
    env.device().rendezvous().publish_value(raw_key(params, "client", number), end.qp->address());
    end.qp->connect(env.device().rendezvous().await_value<fabric::QpAddress>(
        raw_key(params, "server", number), env.now() + runtime::kSetupTimeout));
    const auto receive = [&](std::uint64_t slot) {
      end.qp->receive(memory->sge((slot + 1) * load.size, load.size), slot);
    };
    for (std::uint32_t slot = 0; slot < slots; ++slot) receive(slot);
    env.device().rendezvous().await(raw_key(params, "ready", number),
                                    env.now() + runtime::kSetupTimeout);
    const bool is_inline = load.size <= env.device().capabilities().max_inline;
    const fabric::Sge sge = memory->sge(0, load.size);
    std::vector<fabric::WorkRequest> list(load.batch);
    for (std::uint32_t i = 0; i < load.batch; ++i) {
      list[i].sges = &sge;
      list[i].sge_count = 1;
      list[i].opcode = Opcode::kSend;
      list[i].flags = static_cast<std::uint8_t>((i + 1 == load.batch ? fabric::kSignaled : 0) |
                                                (is_inline ? fabric::kInline : 0));
    }
    measure::Histogram& latency = recorder.histogram("echo");
    std::array<Completion, 64> arrived;
    const auto round = [&] {
      end.qp->post(list);
      std::uint32_t answers = 0;
      env.poll_until(
          [&] {
            const std::size_t count =
                receives->poll(std::span(arrived).first(load.batch - answers));
            for (const Completion& wc : std::span(arrived).first(count)) receive(wc.wr_id);
            answers += static_cast<std::uint32_t>(count);
            return answers == load.batch;
          },
          kForever, &receives->watch());
      Completion done;
      env.poll_until(
          [&] {
            return end.sends->poll({&done, 1}) == 1;
          },
          kForever, &end.sends->watch());
      check_done(done);
    };
    for (int i = 0; i < 40; ++i) round();
    if (!start.wait(index)) return;
    measure::Interval interval(env.now(), params);
    for (Time begin = env.now(); !interval.over(begin);) {
      round();
      const Time finish = env.now();
      for (std::uint32_t i = 0; i < load.batch; ++i)
        if (interval.count(finish)) latency.record(finish - begin);
      begin = finish;
    }
    interval.add_rates(recorder);
  }
};

}  // namespace

std::unique_ptr<measure::Workload> make_echo() { return std::make_unique<EchoLoad>(); }

}  // namespace pyrdma::krcore
