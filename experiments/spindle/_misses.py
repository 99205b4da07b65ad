"""Reasons of misses that several experiments share. All were measured in quick mode on `sim`.

The limits come from runs with a changed parameter of the profile: a tenth of the instructions per
cycle (``cpu.ipc`` 0.18), or four times the rate of links and PCIe (``link.rate_gbps`` 400,
``pcie.rate_gbps`` 460).
"""

from __future__ import annotations

__all__ = ["BURSTS", "FAST", "IDLE", "LINK", "NULLS", "ONE", "RECEIVE"]

FAST = (
    "our steps take about a tenth of the time of the paper's. The baseline has 8.1 GB/s at 4 "
    "members and 2.7 at 16. With a tenth of the instructions per cycle it has 1.35 and 0.50, and "
    "batching 8.1 and 5.8. The paper's baseline has 1.0, and 0.5 at 16 (8.03 by 16)"
)
"""Of the baseline's rate, and of gains over it."""

LINK = (
    "the senders' links limit batching, and not the CPU: with links of four times the rate it has "
    "39 GB/s at 4 members instead of 13, while the baseline keeps its 8.1. For S senders of n "
    "members their bound is 12.5 S/(n-1) GB/s: 25 at 2 members, 16.7 at 4 and 13.3 at 16"
)
"""Of rates with batching, and of their change with the number of members."""

ONE = (
    "one sender's link carries 12.5/(n-1) GB/s at most, and at 4 members and more the baseline has "
    "96 % of that. With a tenth of the instructions per cycle the baseline has 0.59 GB/s at 8 "
    "members, and batching 1.65: 2.8 times as much"
)
"""Of gains where one member sends."""

BURSTS = (
    "the links are the limit, so slots become free in bursts, and a burst is the next batch. With "
    "batches of sends a delivery has 526 messages at 16 members, and without them 23 (spindle/fig5)"
)
"""Of the sizes of send and delivery batches."""

RECEIVE = (
    "a look finds one new batch of one sender: a receive has 1.05 to 1.1 times the messages of a "
    "send with up to 10 subgroups, and 1.7 times with 50. The paper's has 4 to 13 times those of "
    "its send, so several senders' batches"
)
"""Of the sizes of receive batches."""

IDLE = (
    "the links are the limit, so most looks at the active subgroup find nothing. By its shares a "
    "look takes 2.0 times as long as one at an inactive subgroup with 2 subgroups, 3.0 times with "
    "10 and 6.1 times with 50; by the paper's, 99, 81 and 45 times"
)
"""Of the active subgroup's share of the time with batching."""

NULLS = (
    "the senders that never pause keep their rounds without nulls: in a run with all of them the "
    "members send 4 nulls at most, so the two series hardly differ"
)
"""Of what null-sends change under continuous sending."""
