"""Queueing delay and losses by the buffer of a switch (section 5.2.3).

IRN's evaluation had 60 to 480 kB for each port and no sharing; the CX4 cluster's switches share
12 MB. Fifty flows of one server, without congestion control, have 32 packets each under way, 1.6 MB
in all, through one switch. A small buffer loses packets, and each loss costs a timeout. The worst
queueing delay of the large buffer is arithmetic: its bytes over the link's rate.

The server's first long requests make it register memory for them, in its event loop: 25 pages of
256 KiB at 33 us each, in which no packet is answered. With losses the first packets of some flows
come several timeouts late. A short warm-up would therefore find round trips of 0.4 to 0.9 ms with a
buffer that is empty after 19 us. After 150 ms the longest round trip of 50 flows through 60 kB is
35 us, through one switch or two tiers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable, each
from experiments.erpc import _incast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOWS = 50
DYNAMIC = 12000  # kB, of the CX4 cluster
REQUEST = 128 << 10  # bytes: four windows; the last requests end soon also with losses
WARMUP_NS = 150_000_000  # until each flow's first request has come
ONE_SWITCH = {"topology.nodes_per_tor": FLOWS + 1}


def measure(point: Point) -> Any:
    """Measure an incast without congestion control through one size of buffer."""
    buffer = {} if point["buffer"] == DYNAMIC else {"switch.buffer_bytes": point["buffer"] * 1e3}
    result = _incast.run(
        point,
        FLOWS,
        {**ONE_SWITCH, **buffer},
        congestion_control="none",
        request=REQUEST,
        warmup_ns=WARMUP_NS,
    )
    return {
        **_incast.metrics(result),
        "queueing_delay": (result.latency("rtt").percentile(99.9), "ns"),
    }


def worst_delay(data: Data, claim: Claim) -> Decision:
    """Compare the time that the whole buffer takes on the link with the claim."""
    values = Profile.load("cx4").values()
    seconds = values["switch.buffer_bytes"] * 8 / values["link.rate_gbps"] * 1e-9
    found = data.series("queueing_delay", "buffer", claim.unit)
    return Decision(
        None, seconds * 1e3, f"{found.max():.2f} {claim.unit} measured with {FLOWS} flows"
    )


def timeout(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the timeout of the workload with the claim."""
    return Decision(None, TIMEOUT_MS, "the workload's default")


TIMEOUT_MS = 5.0  # retransmission_timeout_ns of `erpc_load`


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw goodput and round-trip time by buffer, with IRN's range."""
    fig, (left, right) = figures.new(1, 2)
    figures.line(left, data, "total_bandwidth", "buffer", unit="Gbps", label="50 flows")
    left.set_ylabel("Total goodput (Gbps)")
    figures.line(right, data, "queueing_delay", "buffer", unit="ms", label="99.9 % of round trips")
    figures.overlay(
        right,
        [(claims["erpc/cx4_max_queueing"], DYNAMIC)],
        unit="ms",
        names={"CX4": "whole buffer"},
    )
    right.set_ylabel("Time (ms)")
    ends = claims["erpc/irn_buffers"].value
    for ax in (left, right):
        ax.axvspan(min(ends), max(ends), color="0.85", zorder=0, label="paper: IRN's buffers")
        ax.set_xscale("log")
        ax.set_xlabel("Buffer of a switch (kB)")
        _axes.from_zero(ax)
    left.legend()
    right.legend()
    return fig


experiment = Experiment(
    id="erpc/sec5_2_irn",
    title="Queueing delay and goodput of an incast by the buffer of a switch",
    profile="cx4",
    axes={
        "buffer": Axis(
            [60, 480, DYNAMIC], full=[60, 120, 240, 480, 1000, 2000, 4000, DYNAMIC], unit="kB"
        )
    },
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "shared memory has no switch",
        "verbs": "the buffer of a real switch cannot be varied",
    },
    decides={
        "erpc/cx4_max_queueing": decide.by_construction(
            worst_delay, "the profile holds the buffer and the link's rate"
        ),
        "erpc/erpc_rto": decide.by_construction(timeout, "the protocol's constant"),
        **each(
            ["erpc/irn_buffers", "erpc/irn_rto"],
            Undecidable("a parameter of IRN's simulation, which it cites"),
        ),
    },
)
