// The common parameters of eRPC's workloads, and the options of an endpoint that follow from them.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "measure/interval.h"
#include "measure/params.h"
#include "systems/erpc/options.h"

namespace pyrdma::erpc {

/// A switch of Options by its name.
struct Switch {
  const char* name;
  bool Options::*value;
  const char* meaning;
};
inline constexpr Switch kSwitches[] = {
    {"batched_timestamps", &Options::batched_timestamps,
     "one reading of the clock per batch (section 5.2.2)"},
    {"timely_bypass", &Options::timely_bypass,
     "no new rate while a session is uncongested (section 5.2.2)"},
    {"rate_limiter_bypass", &Options::rate_limiter_bypass,
     "no wait in the wheel while a session is uncongested (section 5.2.2)"},
    {"multi_packet_receives", &Options::multi_packet_receives,
     "one receive for many packets, where the NIC can (section 4.1.1)"},
    {"preallocated_responses", &Options::preallocated_responses,
     "a response buffer in each slot of a server (section 4.3)"},
    {"zero_copy_receive", &Options::zero_copy_receive,
     "handlers read the NIC's buffer (section 4.2.3)"},
    {"request_copies", &Options::request_copies,
     "the server copies a long request together; off measures the copies (section 6.4)"},
    {"growing_timeouts", &Options::growing_timeouts,
     "the retransmission timeout doubles after each eight copies without an answer; not in the "
     "paper"},
    {"adaptive_timeout", &Options::adaptive_timeout,
     "the retransmission timeout follows the round trips; not in the paper"},
    {"unpaced_without_link", &Options::unpaced_without_link,
     "no rate control over a device without a link, such as shared memory; not in the paper"},
    {"checksums", &Options::checksums, "a checksum in each packet; not in the paper"},
    {"overcommit", &Options::overcommit,
     "more credits of all sessions than receives of the endpoint"},
};

/// Returns the parameters of endpoints and of the interval, then the workload's own.
inline std::vector<measure::ParameterSpec> with_endpoint_parameters(
    std::vector<measure::ParameterSpec> own) {
  using Int = std::int64_t;
  using Text = std::string;
  const Options paper;
  std::vector<measure::ParameterSpec> specs = {
      {"threads", Int{1}, "count", "threads of a node, each with an endpoint", 1, 64},
      {"preset",
       Text("best"),
       "",
       "eRPC's protocol: the paper's, that with the constants of the public program, or with every "
       "improvement on",
       0,
       0,
       {kPresetNames.begin(), kPresetNames.end()}},
      {"congestion_control",
       Text("preset"),
       "",
       "rate control of a session: by round-trip times (timely), by the marks of switches (dcqcn), "
       "or none",
       0,
       0,
       {"preset", "none", "timely", "dcqcn"}},
      {"credits", Int{paper.credits}, "count", "packets of a session under way", 1, 4096},
      {"slots", Int{paper.slots}, "count", "requests of a session under way; a power of two", 1,
       64},
      {"packet_bytes", Int{0}, "bytes",
       "bytes of a packet; 0: as many as the device's datagrams have", 0, 4096},
      {"receive_entries", Int{0}, "count",
       "packets that may wait at an endpoint; 0: the credits of all its sessions", 0, 1 << 20},
      {"max_message", Int{0}, "bytes",
       "the longest message; 0: 8 MiB. A shorter one allows shorter packets", 0, 8 << 20},
      {"link_gbps", 0.0, "Gbit/s", "the most that a session sends; 0: the device's link", 0,
       10'000},
      {"retransmission_timeout_ns", Int{paper.retransmission_timeout}, "ns",
       "time without an answer after which packets are sent again", 1000, 1e12},
      {"failure_timeout_ns", Int{paper.failure_timeout}, "ns",
       "silence after which a node counts as dead", 10'000, 3e12},
      {"wait_timeout_ms", Int{60'000}, "ms",
       "time after which a wait for another node fails and names that node", 1, 1e9},
  };
  for (const Switch& each : kSwitches) {
    specs.push_back({each.name, Text("preset"), "", each.meaning, 0, 0, {"preset", "on", "off"}});
  }
  const std::vector<measure::ParameterSpec> interval = measure::interval_parameters();
  specs.insert(specs.end(), interval.begin(), interval.end());
  specs.insert(specs.end(), own.begin(), own.end());
  return specs;
}

/// Returns the options of an endpoint with up to `sessions` sessions, of both roles.
inline Options endpoint_options(const measure::Params& params, std::uint32_t sessions) {
  measure::check_interval(params);
  Options options = Options::of(params.choice<Preset>("preset"));
  options.name = params.key("erpc");
  if (const std::string& text = params.text("congestion_control"); text != "preset") {
    const auto* const found =
        std::find(kCongestionControlNames.begin(), kCongestionControlNames.end(), text);
    options.congestion_control =
        static_cast<CongestionControl>(found - kCongestionControlNames.begin());
  }
  for (const Switch& each : kSwitches) {
    if (const std::string& text = params.text(each.name); text != "preset")
      options.*each.value = text == "on";
  }
  options.credits = params.count("credits");
  options.slots = params.count("slots");
  if (params.count("packet_bytes") != 0) options.packet_bytes = params.count("packet_bytes");
  if (params.count("max_message") != 0) options.max_message = params.count("max_message");
  options.receive_entries = params.count("receive_entries");
  if (options.receive_entries == 0)
    options.receive_entries = std::max(options.receive_entries, sessions * options.credits);
  options.link_gbps = params.real("link_gbps");
  options.retransmission_timeout = params.integer("retransmission_timeout_ns");
  options.failure_timeout = params.integer("failure_timeout_ns");
  options.connect_timeout = params.integer("wait_timeout_ms") * kMillisecond;
  return options;
}

}  // namespace pyrdma::erpc
