// The common parameters of the workloads, and the options of a group that follow from them.
#pragma once
#include <numeric>
#include <string>
#include <vector>

#include "env/env.h"
#include "measure/params.h"
#include "systems/spindle/options.h"

namespace pyrdma::spindle {

/// A switch of Options by its name.
struct Switch {
  const char* name;
  bool Options::*value;
  const char* meaning;
};
inline constexpr Switch kSwitches[] = {
    {"batch_delivery", &Options::batch_delivery, "deliver all stable messages at once (3.2)"},
    {"batch_receive", &Options::batch_receive, "take all new messages of a sender at once (3.2)"},
    {"batch_send", &Options::batch_send, "push all queued messages at once (3.2)"},
    {"null_sends", &Options::null_sends, "a sender that lags sends nulls (3.3)"},
    {"post_unlocked", &Options::post_unlocked, "post after the lock is released (3.4)"},
    {"batch_upcall", &Options::batch_upcall, "one upcall for all messages of a delivery (3.5)"},
    {"exact_bytes", &Options::exact_bytes,
     "push only the used bytes of the last slot; not in the "
     "paper"},
    {"short_sends", &Options::short_sends,
     "push a long batch to all members in parts of at most 8 KiB; not in the paper"},
    {"skip_quiet", &Options::skip_quiet,
     "look less often at subgroups where nothing happens; not in the paper"},
    {"unlocked_upcalls", &Options::unlocked_upcalls,
     "the lock is free during upcalls; not in the paper"},
};

/// Returns the parameters of a group, then the workload's own.
inline std::vector<measure::ParameterSpec> with_group_parameters(
    std::vector<measure::ParameterSpec> own) {
  using Int = std::int64_t;
  using Text = std::string;
  const Options paper;
  std::vector<measure::ParameterSpec> specs = {
      {"preset",
       Text("paper"),
       "",
       "Spindle's techniques: those of Derecho before it, then one more each, then ours",
       0,
       0,
       {kPresetNames.begin(), kPresetNames.end()}},
      {"fixed_batch", Int{0}, "count",
       "messages for which the send predicate waits; 0: it never waits", 0, 1 << 16},
      {"window", Int{100}, "count", "slots of each sender", 1, 1 << 16},
      {"max_message", Int{10'240}, "bytes", "longest message", 1, 1 << 23},
      {"predicate_thread",
       Text("own"),
       "",
       "the predicates run in a thread of their own, or in the sender's",
       0,
       0,
       {"own", "sender"}},
      {"heartbeat_ns", Int{paper.heartbeat}, "ns", "time between two heartbeats", 1000, 3.6e12},
      {"suspicion_timeout_ns", Int{10 * kSecond}, "ns",
       "silence after which a member is taken for dead", 2000, 3.6e12},
      {"wait_timeout_ms", Int{60'000}, "ms",
       "time after which a wait for another node fails and names that node", 1, 1e9},
  };
  for (const Switch& each : kSwitches) {
    specs.push_back({each.name, Text("preset"), "", each.meaning, 0, 0, {"preset", "on", "off"}});
  }
  specs.insert(specs.end(), own.begin(), own.end());
  return specs;
}

inline std::vector<NodeId> all_nodes(const Env& env) {
  std::vector<NodeId> nodes(env.nodes());
  std::iota(nodes.begin(), nodes.end(), NodeId{0});
  return nodes;
}

/// Returns the parameter `message`; 0 stands for the longest one.
inline std::uint32_t message_bytes(const measure::Params& params) {
  const std::uint32_t bytes = params.count("message"), most = params.count("max_message");
  if (bytes > most)
    throw_parameter(params, "message",
                    "is " + std::to_string(bytes) + ", longer than the slots of " +
                        std::to_string(most) + " bytes; raise max_message");
  return bytes == 0 ? most : bytes;
}

inline Options group_options(const measure::Params& params) {
  Options options = Options::of(params.choice<Preset>("preset"));
  options.name = params.key("spindle");
  for (const Switch& each : kSwitches) {
    if (const std::string& text = params.text(each.name); text != "preset")
      options.*each.value = text == "on";
  }
  options.fixed_batch = params.count("fixed_batch");
  options.predicate_thread = params.text("predicate_thread") == "own";
  options.heartbeat = params.integer("heartbeat_ns");
  options.suspicion_timeout = params.integer("suspicion_timeout_ns");
  options.join_timeout =
      std::max<Time>(options.suspicion_timeout, params.integer("wait_timeout_ms") * kMillisecond);
  return options;
}

}  // namespace pyrdma::spindle
