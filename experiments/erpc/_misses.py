"""Reasons of misses that several experiments share. All were measured in quick mode on `sim`.

The parts of a time come from runs with a parameter of the profile's CPU changed: ten instructions
per cycle (``cpu.ipc``), no time for cache lines (``cpu.*_line_ns``), or none for the driver
(``cpu.post_ns``, ``post_request_ns``, ``poll_ns``).
"""

from __future__ import annotations

__all__ = ["COPIES", "LATENCY", "RAFT", "RATE", "STEPS"]

RATE = (
    "a request that a core sends and one that it serves take 397 ns: about 1,050 instructions of "
    "our steps at an estimated 1.8 per cycle are 244 ns, posts and polls 86, cache lines 45; the "
    "claim leaves 200. With ten instructions per cycle the rate is 5.12 M/s"
)
"""Of one core's rate of small requests on CX4."""

LATENCY = (
    "both CPUs take part once for the request and once for the response. On CX5 our steps' "
    "instructions take 0.48 us (2.45 us remain with ten per cycle), posts and polls 0.22, cache "
    "lines 0.11; a read, 2.03 us, has a post and a poll only"
)
"""Of the latency of an RPC alone."""

STEPS = (
    "our code adds to a request, in this order: clock readings 16 ns, Timely 25, the wheel 101, "
    "receives of one packet 46, buffers of the pool 17, copied requests 30. The paper's rates "
    "leave 5, 15, 11, 14, 35 and 46. Our wheel's steps are 328 counted instructions a packet; the "
    "paper's buffers cost more than our pool"
)
"""Of what a switch of table 3 changes."""

COPIES = (
    "the server copies a packet at the bandwidth of the last-level cache, since a message of 8 MiB "
    "leaves the core's own. Copies take turns with the rest of a packet's work in one thread; "
    "without them the link is the limit (erpc/s64_no_copy_bw)"
)
"""Of the goodput of long requests."""

RAFT = (
    "a put is two RPCs one after the other, and each is longer than the paper's (erpc/table2). Of "
    "11.1 us our steps' instructions are 4.9 (7.1 remain with ten per cycle), most of them "
    "libraft's: a proposal takes 6,370, an incoming message 1,820. Posts and polls are 0.6"
)
"""Of the latency of a replicated put."""
