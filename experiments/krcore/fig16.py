"""Processes of RACE hashing that start under a load spike (section 5.3.1, figure 16).

The load is sampled: it has more than 20 million lookups in each second, so all processes look up
for a burst at the same times, and rest in between. The bursts of a process that is not ready wait
for it. One node stores the table, and 20 processes start on each of the other nine (the paper does
not give the storage nodes, ambiguity unreported_workload).

LITE shares its connections among the processes of a node. So the time of its start is measured
apart, with 180 clients that connect at once as if none had connected before. That is the least that
the start can take, as the first process starts before, and the server's NIC, which limits it, never
waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from experiments import _axes
from experiments.krcore import _misses
from pyrdma import Axis, Experiment, Point, Row, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NODES = 10
PROCESSES = 180
BURST = 48  # lookups of a process, four for each place of its window
INTERVAL_MS = (100, 50)  # from burst to burst, quick and full
LATE_MS = 3000
END_MS = LATE_MS + 200
UNTIL_MS = (300, 400, 500, 600, 700, 800, 1000)
"""Ends of the runs that count the queue pairs on reliable connections."""
SERIES: dict[str, Literal["verbs", "lite", "krcore"]] = {
    "verbs": "verbs",
    "LITE": "lite",
    "KRCore": "krcore",
    "KRCore(DC)": "krcore",
}
"""The queue pairs or calls of each series."""
ABOUT = 0.1
"""Relative difference of two rates of which one is about the other."""
BOOTS = ("verbs", "LITE", "KRCore")


def spike(point: Point, series: str, end_ms: int) -> Any:
    """Run the spike until `end_ms`."""
    load = workload.KrcoreSpike(
        system=SERIES[series],
        processes=PROCESSES,
        sampled_rc=series == "KRCore",
        burst=BURST,
        interval_ms=INTERVAL_MS[0 if point.quick else 1],
        end_ms=end_ms,
    )
    with point.cluster(nodes=NODES) as cluster:
        return cluster.run(load)


def measure(point: Point) -> list[Row]:
    """Measure one system."""
    series = str(point["series"])
    result = spike(point, series, END_MS)
    ready = [s.value for s in result.samples if s.metric == "ready"]
    boot = max(ready)
    if series == "LITE":
        load = workload.KrcoreLiteConnect(clients=PROCESSES, iterations=1, warmup_ns=0)
        with point.cluster(nodes=NODES) as cluster:
            start = Profile.load(point.profile).parameters["cpu.process_start_ns"].value
            boot = float(start) + cluster.run(load).latency("connect").max
    rows = [
        Row("boot", boot, "ns"),
        Row("processes", float(len(ready)), "count"),
        Row("get_p99", result.latency("get").percentile(99), "ns"),
    ]
    rates: dict[int, float] = {}
    for sample in result.samples:
        name, _, at = sample.metric.partition("/")
        if name == "burst_ns":
            rates[int(at)] = rates.get(int(at), 0.0) + BURST * 1e9 / sample.value
    rows += [Row("rate", rate, "op/s", {"at": at}) for at, rate in sorted(rates.items())]
    if series == "KRCore":
        for until in UNTIL_MS:
            samples = spike(point, series, until).samples
            moved = sum(s.value for s in samples if s.metric == "transfers")
            rows.append(Row("moved", moved, "count", {"until": until}))
    return rows


def timeline(data: Data, series: str) -> pd.Series:
    """Return the rate of the bursts over their time, in millions per second over milliseconds."""
    return data.series("rate", "at", "M req/s", series=series)


def late(data: Data, series: str) -> float:
    """Return the mean rate of the bursts after 3 s."""
    return float(timeline(data, series).loc[LATE_MS:].mean())


def rate(series: str) -> Any:
    """Compare the rate after 3 s."""

    def decider(data: Data, claim: Claim) -> Decision:
        found = timeline(data, series)
        text = f"{len(found.loc[LATE_MS:])} bursts; all {found.min():.1f} to {found.max():.1f}"
        return Decision(None, late(data, series), f"{text} {claim.unit}")

    return decider


def hybrid(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the rates after 3 s on reliable and on dynamic connections."""
    reliable, dynamic = late(data, "KRCore"), late(data, "KRCore(DC)")
    return Decision(None, reliable / dynamic, f"{reliable:.1f} to {dynamic:.1f} M/s")


def versus_lite(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the rates after 3 s of KRCore and of LITE."""
    ours, lite = late(data, "KRCore"), late(data, "LITE")
    return Decision(None, ours / lite, f"{ours:.1f} to {lite:.1f} M/s")


def rank_of_peaks(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether KRCore(RC) is about as fast as verbs, and faster than KRCore(DC) and LITE."""
    verbs, reliable, dynamic, lite = (
        late(data, series) for series in ("verbs", "KRCore", "KRCore(DC)", "LITE")
    )
    text = (
        f"verbs {verbs:.1f}, KRCore(RC) {reliable:.1f}, KRCore(DC) {dynamic:.1f}, LITE {lite:.1f}"
    )
    holds = abs(reliable / verbs - 1) <= ABOUT and reliable > dynamic > lite
    return Decision(holds, f"{text} M/s")


def switch(data: Data, claim: Claim) -> Decision:
    """Return the end of the shortest run in which all queue pairs changed their connection."""
    moved = data.series("moved", "until", "count", series="KRCore")
    text = ", ".join(f"{int(ms)} ms: {count:.0f}" for ms, count in moved.items())
    ended = [int(ms) for ms in moved.index if moved[ms] >= PROCESSES]
    if not ended:
        return Decision(False, f"not all until {int(moved.index[-1])} ms", text)
    return Decision(None, ended[0] / 1000, f"{claim.unit}; {text}")


def reduction(other: str) -> Any:
    """Compare the reduction of the start against another system."""
    return decide.ratio("boot", {"series": "KRCore"}, {"series": other}, "loss")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the time of the start, and the rate over the time."""
    fig, (left, right) = figures.new(1, 2)
    names = ["verbs", "LITE,\nconnections alone", "KRCore"]
    figures.bars(left, names, {"measured": [data.value("boot", "ms", series=s) for s in BOOTS]})
    _axes.write_inside(left, "{:.0f}")
    papers = [claims[f"krcore/f16_{s.lower()}_boot"] for s in BOOTS]
    for place, (claim, marker) in enumerate(zip(papers, "os^", strict=True)):
        if claim.number is not None:
            height = claim.number * (1000 if claim.unit == "s" else 1)
            _axes.hollow(left, place, height, f"paper: {BOOTS[place]}", marker)
    left.set(ylabel="Until all 180 processes are ready (ms)", ylim=(0, 1800))
    left.legend()
    for number, series in enumerate(SERIES):
        found = timeline(data, series)
        seconds = [float(ms) / 1000 for ms in found.index]
        right.plot(seconds, list(found), label=series, **figures.style_of(number))
    _axes.layer(right)
    # Side by side: the two peaks are equal. Dynamic connections are those before 2.2 s.
    shown = [("f16_peak_verbs", 3.0), ("f16_peak_krcore", 3.2), ("f16_dc_throughput", 1.2)]
    shown += [("f16_peak_lite", 3.1)]
    figures.overlay(right, [(claims[f"krcore/{c}"], at) for c, at in shown], unit="M req/s")
    right.set(xlabel="Time after the spike (s)", ylabel="Lookups in a burst (M/s)", ylim=(0, 32))
    right.legend()
    fig.suptitle(f"The load is sampled: bursts of {BURST} lookups of each process, then rest")
    return fig


DECIDES: dict[str, Any] = {
    "krcore/headline_race_bootstrap": reduction("verbs"),
    "krcore/f16_new_processes": decide.by_construction(
        decide.value("processes", series="KRCore"), "a parameter of the load"
    ),
    "krcore/f16_krcore_boot": decide.value("boot", series="KRCore"),
    "krcore/f16_verbs_boot": decide.value("boot", series="verbs"),
    "krcore/f16_lite_boot": decide.value("boot", series="LITE"),
    "krcore/f16_reduction_verbs": reduction("verbs"),
    "krcore/f16_reduction_lite": reduction("LITE"),
    "krcore/f16_p99": decide.ratio("get_p99", {"series": "verbs"}, {"series": "KRCore"}),
    "krcore/f16_peak_krcore": rate("KRCore"),
    "krcore/f16_peak_lite": rate("LITE"),
    "krcore/f16_peak_verbs": rate("verbs"),
    "krcore/f16_vs_lite": versus_lite,
    "krcore/f16_dc_throughput": rate("KRCore(DC)"),
    "krcore/f16_rc_over_dc": hybrid,
    "krcore/f16_switch_time": switch,
    "krcore/f16_rank_boot": decide.rank(
        "boot", [{"series": s} for s in ("verbs", "LITE", "KRCore")]
    ),
    "krcore/f16_rank_peak": rank_of_peaks,
}

experiment = Experiment(
    id="krcore/fig16",
    title="RACE hashing under a load spike (sampled load)",
    profile="krcore",
    axes={"series": Axis([*BOOTS, "KRCore(DC)"])},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "180 processes need 180 cores",
        "verbs": "the time of a process start is a parameter of the simulation",
    },
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
