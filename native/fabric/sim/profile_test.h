// Tests of the simulator itself use this small plausible profile. The profiles of the testbeds are
// TOML files.
#pragma once
#include <map>
#include <string>

#include "fabric/sim/profile.h"

namespace pyrdma::fabric::sim {

inline std::map<std::string, double> test_profile_values() {
  std::map<std::string, double> values;
  for (const ParameterInfo& info : SimProfile::parameters())
    values[std::string(info.name)] = info.min;
  const std::pair<const char*, double> set[] = {{"topology.nodes_per_tor", 16},
                                                {"topology.uplinks_per_tor", 4},
                                                {"topology.uplink_gbps", 100},
                                                {"topology.spines", 1},
                                                {"topology.ecmp", 1},
                                                {"link.rate_gbps", 100},
                                                {"link.mtu_bytes", 4096},
                                                {"link.overhead_bytes", 60},
                                                {"link.datagram_overhead_bytes", 80},
                                                {"link.ack_bytes", 60},
                                                {"link.propagation_ns", 20},
                                                {"link.lossless", 1},
                                                {"switch.latency_ns", 150},
                                                {"switch.buffer_bytes", 12e6},
                                                {"switch.alpha", 1},
                                                {"switch.ecn_threshold_bytes", 1e6},
                                                {"switch.pfc_xoff_bytes", 1e6},
                                                {"pcie.doorbell_ns", 150},
                                                {"pcie.read_ns", 400},
                                                {"pcie.write_ns", 200},
                                                {"pcie.rate_gbps", 126},
                                                {"pcie.payload_bytes", 256},
                                                {"pcie.header_bytes", 24},
                                                {"nic.tx_latency_ns", 50},
                                                {"nic.rx_latency_ns", 50},
                                                {"nic.tx_packet_ns", 5},
                                                {"nic.rx_packet_ns", 5},
                                                {"nic.tx_message_ns", 7},
                                                {"nic.qp_message_ns", 20},
                                                {"nic.qp_read_ns", 20},
                                                {"nic.rx_write_ns", 7},
                                                {"nic.rx_read_ns", 7},
                                                {"nic.rx_send_ns", 7},
                                                {"nic.rx_atomic_ns", 20},
                                                {"nic.atomic_address_ns", 400},
                                                {"nic.device_atomic_address_ns", 100},
                                                {"nic.rx_ack_ns", 5},
                                                {"nic.max_inline_bytes", 220},
                                                {"nic.cache_bytes", 2e6},
                                                {"nic.qp_state_bytes", 375},
                                                {"nic.qp_miss_ns", 100},
                                                {"nic.mr_state_bytes", 64},
                                                {"nic.page_state_bytes", 8},
                                                {"nic.mr_miss_ns", 100},
                                                {"nic.request_cache", 1024},
                                                {"nic.request_miss_ns", 25},
                                                {"nic.receive_prefetch", 32},
                                                {"nic.receive_cache", 1e6},
                                                {"nic.receive_strides", 512},
                                                {"nic.doorbell_carries_any", 1},
                                                {"nic.answers_overrun", 1},
                                                {"nic.page_bytes", 2097152},
                                                {"nic.max_outstanding_reads", 16},
                                                {"nic.has_dc", 1},
                                                {"nic.dc_reconnect_ns", 900},
                                                {"nic.device_memory_bytes", 65536},
                                                {"nic.device_memory_saving_ns", 100},
                                                {"cpu.post_ns", 50},
                                                {"cpu.post_request_ns", 15},
                                                {"cpu.poll_ns", 20},
                                                {"cpu.empty_poll_ns", 10},
                                                {"cpu.clock_read_ns", 8},
                                                {"cpu.clock_ghz", 2.5},
                                                {"cpu.ipc", 2},
                                                {"cpu.atomic_ns", 6},
                                                {"cpu.near_line_ns", 4},
                                                {"cpu.llc_line_ns", 15},
                                                {"cpu.nic_line_ns", 20},
                                                {"cpu.own_line_ns", 20},
                                                {"cpu.core_line_ns", 40},
                                                {"cpu.memory_line_ns", 80},
                                                {"cpu.memory_loaded_ns", 120},
                                                {"cpu.near_bytes", 262144},
                                                {"cpu.llc_bytes", 20e6},
                                                {"cpu.nic_llc_bytes", 2e6},
                                                {"cpu.near_copy_gbps", 160},
                                                {"cpu.llc_copy_gbps", 80},
                                                {"cpu.memory_copy_gbps", 40},
                                                {"cpu.memory_gbps", 400},
                                                {"cpu.numa_hop_ns", 60},
                                                {"cpu.context_switch_ns", 1000},
                                                {"cpu.process_start_ns", 500000},
                                                {"cpu.timeslice_us", 1000},
                                                {"control.create_us", 5},
                                                {"control.create_qp_commands", 1},
                                                {"control.create_qp_command_us", 5},
                                                {"control.handshake_us", 10},
                                                {"storage.rate_gbps", 10}};
  for (const auto& [name, value] : set) values.at(name) = value;
  return values;
}

inline SimProfile test_profile() { return SimProfile::from_values(test_profile_values()); }

}  // namespace pyrdma::fabric::sim
