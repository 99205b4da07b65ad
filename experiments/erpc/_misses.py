"""Reasons of misses that several experiments share. All were measured in quick mode on `sim`.

The parts of a time come from runs with a parameter of the profile's CPU changed: ten instructions
per cycle (``cpu.ipc``), no time for cache lines (``cpu.*_line_ns``), or none for the driver
(``cpu.post_ns``, ``post_request_ns``, ``poll_ns``).
"""

from __future__ import annotations

__all__ = ["COPIES", "LATENCY", "RAFT", "RATE", "STEPS"]

RATE = (
    "a request that a core sends and one that it serves take 424 ns: about 1,190 instructions of "
    "our steps at an estimated 1.8 per cycle are 276 ns, posts and polls 94, cache lines 51; the "
    "claim leaves 200. With ten instructions per cycle the rate is 5.06 M/s"
)
"""Of one core's rate of small requests on CX4."""

LATENCY = (
    "both CPUs take part once for the request and once for the response. On CX5 our steps' "
    "instructions take 0.46 us (2.45 us remain with ten per cycle), posts and polls 0.20, cache "
    "lines 0.11; a read, 2.03 us, has a post and a poll only"
)
"""Of the latency of an RPC alone."""

STEPS = (
    "a step costs the mean of its counted instructions whatever the switch: the code that this "
    "switch adds or leaves out is no step of its own (native/systems/erpc/scopes.h), so only clock "
    "readings, lines of the NIC and the wheel's waits show"
)
"""Of what a switch of table 3 changes."""

COPIES = (
    "the simulator's server copies a packet at the bandwidth of the core's own cache, 500 Gbps, "
    "since message buffers are no footprint of the model, and the link of 100 Gbps is the limit. "
    "At 80 Gbps, that of the last-level cache, the goodput is 57 Gbps"
)
"""Of the goodput of long requests."""

RAFT = (
    "a put is two RPCs one after the other, and each is longer than the paper's (erpc/table2). Of "
    "11.0 us our steps' instructions are 4.9 (7.1 remain with ten per cycle), most of them "
    "libraft's: a proposal takes 6,340, an incoming message 1,820. Posts and polls are 0.6"
)
"""Of the latency of a replicated put."""
