"""The three measurement clusters (table 1): the profiles hold the numbers, nothing is measured."""

from __future__ import annotations

from pyrdma import Experiment, decide

experiment = Experiment(
    id="erpc/table1",
    title="The three measurement clusters",
    profile="cx4",
    measure=None,
    decides={
        "erpc/cx3_nodes": decide.profile("nodes", profile="cx3"),
        "erpc/cx4_nodes": decide.profile("nodes"),
        "erpc/cx5_nodes": decide.profile("nodes", profile="cx5"),
        "erpc/cx3_link_rate": decide.profile("link.rate_gbps", profile="cx3"),
        "erpc/cx4_link_rate": decide.profile("link.rate_gbps"),
        "erpc/cx5_link_rate": decide.profile("link.rate_gbps", profile="cx5"),
        "erpc/cx3_cores": decide.profile("cores_per_node", profile="cx3"),
        "erpc/cx4_cores": decide.profile("cores_per_node"),
        "erpc/cx5_cores": decide.profile("cores_per_node", profile="cx5"),
        "erpc/cx4_tor_downlinks": decide.profile("topology.nodes_per_tor"),
        "erpc/cx4_tor_uplinks": decide.profile("topology.uplinks_per_tor"),
        "erpc/spectrum_port_latency": decide.profile("switch.latency_ns"),
        "erpc/spectrum_buffer": decide.profile("switch.buffer_bytes"),
        "erpc/cx5_switch_latency": decide.profile("switch.latency_ns", profile="cx5"),
        "erpc/rdtsc_cost": decide.profile("cpu.clock_read_ns"),
        "erpc/appa_hugepage": decide.profile("nic.page_bytes"),
    },
)
