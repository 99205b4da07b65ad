"""Throughput of the baseline whose delivery upcall takes its time (section 3.5).

The upcall of each message computes for 1 us, 100 us or 1 ms. The paper states neither its nodes nor
its senders: here all members send 10 KB, and the claims take the mean over the sizes. A delay rules
the run, so a full run sends 5,000 messages. `best` has one upcall for all messages of a delivery,
and leaves the lock during it; each message takes as long, so it is as slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DELAYS = {1: "1us", 100: "100us", 1000: "1ms"}
"""By microseconds: names in the claims."""
LABELS = {1: "1 µs", 100: "100 µs", 1000: "1 ms"}
LONG = (100, 1000)


def measure(point: Point) -> Any:
    """Measure one delay."""
    sent = _multicast.messages(point, point["nodes"], full=5000)
    delay_ns = 1000 * point["upcall_us"]
    load = {"preset": point["series"], "upcall_ns": delay_ns, "messages": sent}
    found = _multicast.measured(_multicast.run(point, point["nodes"], **load))
    per_delay = found["message_rate"][0] * delay_ns * 1e-9
    return {**found, **({"messages_per_delay": (per_delay, "count")} if delay_ns else {})}


def one_per_delay(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the rate that is farthest from one message per long delay."""
    rows = data.select("messages_per_delay", series="baseline", upcall_us=list(LONG))
    rates = [float(rate) for rate in rows["value"]]
    worst = max(rates, key=lambda rate: abs(rate - 1))
    return Decision(None, worst, f"{min(rates):.3f} to {max(rates):.3f} at {len(rates)} points")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the throughput that each delay leaves, over the nodes."""
    fig, ax = figures.new()
    lines = [*(("baseline", delay) for delay in DELAYS), ("best", LONG[0])]
    for number, (series, delay) in enumerate(lines):
        pair = {"upcall_us": delay}, {"upcall_us": 0}
        rest = 100 * _multicast.ratios(data, "throughput", *pair, series=series)
        name = f"{_multicast.NAMES[series]}, {LABELS[delay]}"
        ax.plot(list(rest.index), list(rest), label=name, **figures.style_of(number))
    nodes = data.values_of("nodes")
    for number, (delay, name) in enumerate(DELAYS.items()):
        change = claims[f"spindle/upcall_delay_{name}"].number
        if change is not None:
            style = {"linestyle": figures.style_of(number)["linestyle"], "linewidth": 0.9}
            label = f"paper: mean, {LABELS[delay]}"
            ax.plot([nodes[0], nodes[-1]], [100 + change] * 2, color="black", label=label, **style)
    _axes.logarithmic(ax)
    ax.set(xlabel="Nodes", ylabel="Throughput left by the delay (%)")
    ax.set_xticks(nodes)
    figures.legend_below([ax])
    return fig


experiment = Experiment(
    id="spindle/sec3_5_upcall_delay",
    title="Cost of a slow delivery upcall",
    profile="spindle",
    axes={
        "series": Axis(["baseline", "best"]),
        "upcall_us": Axis([0, *DELAYS], unit="us"),
        "nodes": Axis([2, 4, 8], full=_multicast.ALL_NODES),
    },
    where=lambda params: params["series"] == "baseline" or params["upcall_us"] in (0, LONG[0]),
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        **{
            f"spindle/upcall_delay_{name}": _multicast.average(
                "throughput", {"upcall_us": delay}, {"upcall_us": 0}, "change", series="baseline"
            )
            for delay, name in DELAYS.items()
        },
        "spindle/upcall_delay_degenerate_rate": one_per_delay,
    },
    misses={
        "spindle/upcall_delay_1us": "a message takes our baseline 1.27 us at 4 members (8.1 "
        "GB/s), so 1 us more takes 44 % of the rate. At the paper's 1 GB/s a message takes 10.2 "
        "us",
    },
)
