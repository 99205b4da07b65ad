"""Incast with and without congestion control (table 5, section 6.5).

Up to 100 clients send long requests to one server, one flow each. The round-trip times of packets
at the clients show the queue at the server's switch. One more series, which the paper could not
have, controls the rate by the marks of the switches, as DCQCN does; it decides no claim. Its
switches mark as those of DCQCN's paper (Zhu, SIGCOMM 2015, section 5.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable
from experiments.erpc import _incast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTROL = {"eRPC": "timely", "eRPC_no_cc": "none", "eRPC_dcqcn": "dcqcn"}
NAMES = {"eRPC": "Timely", "eRPC_no_cc": "no control", "eRPC_dcqcn": "DCQCN"}
METRICS = {"bw": "total_bandwidth", "p50": "rtt_p50", "p99": "rtt_p99"}
ACHIEVABLE = 23  # Gbps, of the cluster's links (section 6.3)
SUBSTANTIAL = 0.25  # of the time without control: a smaller reduction is not substantial
RED = {
    "switch.ecn_threshold_bytes": 5e3,
    "switch.ecn_kmax_bytes": 200e3,
    "switch.ecn_pmax": 0.01,
}
KEYS = {"eRPC": "", "eRPC_no_cc": "nocc_"}


def measure(point: Point) -> Any:
    """Measure one degree with one kind of control."""
    control = CONTROL[point["series"]]
    marks = RED if control == "dcqcn" else {}
    result = _incast.run(point, point["incast"], marks, congestion_control=control)
    return _incast.metrics(result)


def reductions(data: Data, metric: str) -> dict[int, float]:
    """Return by which factor control reduces a round-trip time, by degree."""
    both = [data.series(metric, "incast", "us", series=s) for s in ("eRPC", "eRPC_no_cc")]
    return {int(n): float(both[1][n] / both[0][n]) for n in both[0].index}


def reduced(metric: str, degrees: tuple[int, ...]) -> decide.Decider:
    """Compare the least reduction of these degrees with the claim."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        found = reductions(data, metric)
        missing = [n for n in degrees if n not in found]
        if missing:
            raise decide.NotEvaluated(f"degree {missing[0]} was not measured")
        text = ", ".join(f"{found[n]:.1f} at {n}" for n in degrees)
        return Decision(None, min(found[n] for n in degrees), text)

    return decider


def no_gain(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether control leaves the 99th percentile of 100 flows about as it was."""
    found = reductions(data, "rtt_p99")
    if 100 not in found:
        raise decide.NotEvaluated("degree 100 was not measured")
    share = 1 / found[100]
    return Decision(share > 1 - SUBSTANTIAL, f"{share:.2f} times that without control")


def shortfall(data: Data, claim: Claim) -> Decision:
    """Take the largest distance from the achievable bandwidth, in percent."""
    found = data.series("total_bandwidth", "incast", "Gbps", series="eRPC")
    worst = found.idxmin()
    return Decision(
        None,
        100 * (1 - float(found[worst]) / ACHIEVABLE),
        f"{found[worst]:.1f} Gbps at {worst}, in {claim.unit} of {ACHIEVABLE}",
    )


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw bandwidth, median and 99th percentile by degree, beside the paper's."""
    fig, panels = figures.new(1, 3)
    titles = {"bw": "Total goodput (Gbps)", "p50": "Median RTT (µs)", "p99": "99th % RTT (µs)"}
    units = {"bw": "Gbps", "p50": "us", "p99": "us"}
    degrees = data.values_of("incast")
    for ax, (key, metric) in zip(panels, METRICS.items(), strict=True):
        found = {
            name: [data.value(metric, units[key], series=s, incast=n) for n in degrees]
            for s, name in NAMES.items()
        }
        figures.bars(ax, [str(n) for n in degrees], found)
        numbers = [
            (claims[f"erpc/t5_{n}_{part}{key}"], x + shift)
            for (series, part), shift in zip(KEYS.items(), (-0.27, 0.0), strict=True)
            for x, n in enumerate(degrees)
        ]
        figures.overlay(ax, numbers, unit=units[key], names=NAMES)
        ax.set(xlabel="Flows", ylabel=titles[key])
    panels[0].set_ylim(0, 42)
    for ax in panels[1:]:
        _axes.from_zero(ax)
    panels[0].legend()
    return fig


SETTLED = (
    "Timely lets rates grow while round trips are below t_low, 50 us, and 20 flows settle there: "
    "two of three seeds have a median of 49 us and a 99th percentile of 54 to 55, the third 32 and "
    "92. The claim needs rates that have not settled"
)
SWINGS = (
    "Timely's rates swing with 50 flows and more. By the seed, and by small changes of the steps' "
    "costs or of the begin, the median of 50 flows is 35 to 41 us, the 99th percentile 177 to 232 "
    "and the goodput 18.3 to 19.1 Gbps; of 100 flows the two are 434 to 475 us and 959 to 985. The "
    "paper gives no duration"
)

experiment = Experiment(
    id="erpc/table5",
    title="Incast with and without congestion control",
    profile="cx4",
    axes={"series": Axis(list(CONTROL)), "incast": Axis(list(_incast.DEGREES))},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "shared memory has no switch to congest",
        "verbs": "needs up to 101 nodes below five switches",
    },
    decides={
        **{
            f"erpc/t5_{n}_{part}{key}": decide.value(metric, series=series, incast=n)
            for n in _incast.DEGREES
            for series, part in KEYS.items()
            for key, metric in METRICS.items()
        },
        "erpc/t5_p50_reduction_le50": reduced("rtt_p50", (20, 50)),
        "erpc/t5_p99_reduction_le50": reduced("rtt_p99", (20, 50)),
        "erpc/t5_p50_reduction_100": reduced("rtt_p50", (100,)),
        "erpc/t5_p99_100_no_gain": no_gain,
        "erpc/t5_bw_within": shortfall,
        "erpc/t5_timely_flow_limit": Undecidable(
            "an analysis of Timely-like protocols, which it cites"
        ),
    },
    misses={
        "erpc/t5_20_p50": SETTLED,
        "erpc/t5_20_nocc_p50": "all credits wait: 23.06 Gbps times 222 us are 640 packets of "
        "1,000 B, 32 of each flow. The claim's numbers give 583 kB, 29 packets of each flow",
        "erpc/t5_20_p99": SETTLED,
        "erpc/t5_50_p50": SWINGS,
        "erpc/t5_50_p99": SWINGS,
        "erpc/t5_100_p50": SWINGS,
        "erpc/t5_100_p99": SWINGS,
        "erpc/t5_p50_reduction_le50": SETTLED,
        "erpc/t5_p99_reduction_le50": SWINGS,
        "erpc/t5_bw_within": SWINGS,
    },
)
