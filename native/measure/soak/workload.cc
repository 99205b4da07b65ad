// soak: every node exchanges checked data with every other node for a given time, while nodes are
// killed and started again. A restarted node runs the same workload, and its peers meet it.
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "env/storage.h"
#include "measure/shared_workloads.h"
#include "measure/soak/link.h"

namespace pyrdma::measure {

namespace {

using fabric::Completion;
using soak::Link;
using soak::name_of;
using soak::Shared;
using Int = std::int64_t;

/// Returns the end of the run. Node 0 sets it once for all nodes, also for restarted ones.
Time agree_on_end(const Shared& shared, Time duration) {
  Env& env = shared.env;
  if (env.node() == 0 && !shared.find<Time>("end")) {
    shared.publish("end", env.now() + duration);
  }
  const std::string key = shared.params.key("soak/end");
  return env.device().rendezvous().await_value<Time>(key, env.now() + 120 * kSecond);
}

/// Reports when each node noticed the end of each killed node: "lost/<killed>/<observer>".
void report_lost(const Shared& shared, const std::vector<std::uint32_t>& incarnations,
                 Recorder& recorder) {
  for (NodeId peer = 0; peer < incarnations.size(); ++peer) {
    for (std::uint32_t i = 0; i <= incarnations[peer]; ++i) {
      for (NodeId node = 0; node < incarnations.size(); ++node) {
        for (std::uint32_t k = 0; k <= incarnations[node]; ++k) {
          const std::string name = "lost/" + name_of(peer, i) + "/" + name_of(node, k);
          if (const auto when = shared.find<Time>(name)) {
            recorder.add(name, "ns", static_cast<double>(*when));
          }
        }
      }
    }
  }
}

class Soak final : public Workload {
 public:
  std::span<const ParameterSpec> parameters() const override {
    static const std::vector<ParameterSpec> specs = {
        {"size", Int{4096}, "B",
         "bytes that a round writes, reads back and compares; a multiple of 8", 8, 1 << 20},
        {"interval_ns", Int{100'000}, "ns", "pause between two rounds with one peer", 0, 1e10},
        {"duration_ns", Int{1'000'000}, "ns", "how long, from node 0's start", 0, 1e15},
    };
    return specs;
  }

  void run(Env& env, const Params& params, Recorder& recorder) override {
    if (params.integer("size") % 8 != 0) throw_parameter(params, "size", "give a multiple of 8");
    Shared shared{env, params, params.count("size"), params.integer("interval_ns"), {}, {}, {}};
    fabric::Device& device = env.device();
    shared.pd = device.create_protection_domain();
    shared.completions = device.create_completion_queue(
        std::min(env.nodes() * Link::kOutstanding, device.capabilities().max_completions));
    shared.region = device.allocate(*shared.pd, env.nodes() * Link::room(shared.bytes),
                                    fabric::kAllAccess);  // peers write, read and add
    shared.publish("hello/" + name_of(env.node(), env.incarnation()), shared.region->remote());
    // The file of a killed process stays, so a soak also tests the removal of such files.
    env.storage().open("soak")->write(0, std::as_bytes(std::span("here")));
    const Time end = agree_on_end(shared, params.integer("duration_ns"));

    std::vector<std::unique_ptr<Link>> links(env.nodes());
    for (NodeId peer = 0; peer < env.nodes(); ++peer) {
      if (peer != env.node()) links[peer] = std::make_unique<Link>(shared, peer);
    }
    Completion batch[32];
    for (Time now = env.now(); now < end; now = env.now()) {
      Time due = end;
      for (const auto& link : links) {
        if (link) due = std::min(due, link->turn(now));
      }
      std::size_t count = 0;
      env.poll_until([&] { return (count = shared.completions->poll(batch)) != 0; }, due);
      if (env.now() >= end) break;  // peers leave after the end
      for (std::size_t i = 0; i < count; ++i)
        links[Link::peer_of(batch[i].wr_id)]->complete(batch[i]);
    }
    soak::Counts sum;
    std::vector<std::uint32_t> incarnations(env.nodes(), env.incarnation());
    for (NodeId peer = 0; peer < env.nodes(); ++peer) {
      if (!links[peer]) continue;
      const soak::Counts& counts = links[peer]->counts();
      sum.rounds += counts.rounds;
      sum.met += counts.met;
      sum.lost += counts.lost;
      sum.wrong += counts.wrong;
      incarnations[peer] = links[peer]->incarnation();
    }
    recorder.add("rounds", "count", static_cast<double>(sum.rounds));
    recorder.add("met", "count", static_cast<double>(sum.met));
    recorder.add("lost", "count", static_cast<double>(sum.lost));
    recorder.add("wrong", "count", static_cast<double>(sum.wrong));
    if (env.node() == 0) report_lost(shared, incarnations, recorder);
  }
};

}  // namespace

std::unique_ptr<Workload> make_soak() { return std::make_unique<Soak>(); }

}  // namespace pyrdma::measure
