"""Properties of null-sends that the paper states or proves (section 3.3).

Members are senders that send all the time, after a delay, or never. A run stalls if a node delivers
nothing for 10 s before it has all. Without nulls a sender that never sends stalls every run, which
shows that a stall is found.

Random schedules of `pyrdma fuzz spindle`, without faults, count as runs, too: a checker compares
the orders of all members, and finds messages that are never delivered.

A null of an idle time would be one that no message of an application asks for. A message asks for
one null of each other sender at most, so the nulls above that number count. In the pattern `idle`
each sender computes for a millisecond after each message, hundreds of round trips.

The spread of rounds is that at the end of a run whose senders have sent equally many messages: the
sent rounds of a sender are its messages and its nulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, decide, figures, fuzz
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.errors import Timeout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MS = 1_000_000
PATTERNS: dict[str, tuple[str, dict[str, Any]]] = {
    "continuous": ("all send", {}),
    "one late": ("one sends\nevery 0.1 ms", {"delayed": "one", "delay_ns": MS // 10}),
    "half late": ("half send\nevery 0.1 ms", {"delayed": "half", "delay_ns": MS // 10}),
    "one silent": ("one sends\nnothing", {"delayed": "one", "delay_ns": -1}),
    "half silent": ("half send\nnothing", {"delayed": "half", "delay_ns": -1}),
    "idle": ("each sends\nevery 1 ms", {"delayed": "all", "delay_ns": MS}),
    "half declared": ("half are\nsenders", {"senders": "half"}),
}
RANDOM = "random"  # the schedules of `pyrdma fuzz`
NULLS, NONE = {"series": "batching+nulls"}, {"series": "batching"}
MEMBERS, OPERATIONS = 5, 1000  # of a random schedule


def where(params: Mapping[str, Any]) -> bool:
    """Keep one size of the random schedules, with nulls."""
    if params["pattern"] != RANDOM:
        return True
    return bool(params["series"] == NULLS["series"] and params["nodes"] == 4)


def measure(point: Point) -> Any:
    """Count the runs that stall or differ, and the nulls that nobody asked for."""
    if point["pattern"] == RANDOM:
        return random_schedules(point)
    load = {"preset": point["series"], **PATTERNS[point["pattern"]][1]}
    sent = _multicast.messages(point, point["nodes"], full=5000)
    try:
        result = _multicast.run(point, point["nodes"], messages=sent, **load)
    except Timeout:
        return {"stalls": (1, "count")}
    found = {**_multicast.measured(result), "stalls": (0, "count")}
    nulls, sent_by = (_multicast.by_node(result, metric) for metric in ("nulls", "sent"))
    most = sum(sent_by) * (len(nulls) - 1)
    found["nulls"] = (sum(nulls), "count")
    found["nulls_when_idle"] = (max(0.0, sum(nulls) - most), "count")
    if point["pattern"] == "continuous":
        rounds = [a + b for a, b in zip(nulls, sent_by, strict=True)]
        found["round_spread"] = (max(rounds) - min(rounds), "count")
    return found


def random_schedules(point: Point) -> dict[str, tuple[float, str]]:
    """Count the random schedules that stall, and those whose orders differ."""
    options = fuzz.Options(
        system="spindle",
        nodes=MEMBERS,
        operations=OPERATIONS,
        profile=point.profile,
        weak=False,
        faults={},
        preset=point["series"],
    )
    seeds = 20 if point.quick else 500
    first = 1 + (point.seed - 1) * seeds
    found = [fuzz.run(options, seed)["violations"] for seed in range(first, first + seeds)]
    kinds = [{kind for kind, _ in violations} for violations in found]
    return {
        "stalls": (sum("liveness" in each for each in kinds), "count"),
        "order_divergence": (sum(bool(each - {"liveness"}) for each in kinds), "count"),
        "schedules": (seeds, "count"),
    }


def total(metric: str) -> decide.Decider:
    """Compare the sum of a count over all patterns and sizes with the claim."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        rows = data.select(metric, **NULLS)
        return Decision(None, float(rows["value"].sum()), f"{len(rows)} points")

    return decider


def stalls(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Count the stalls with nulls, if runs without nulls stall where a sender is silent."""
    silent = data.select("stalls", pattern=["one silent", "half silent"], **NONE)
    if silent["value"].min() < 1:
        raise decide.NotEvaluated("a run without nulls ended although a sender sent nothing")
    rows = data.select("stalls", **NULLS)
    return Decision(None, float(rows["value"].sum()), f"{len(rows)} points; without nulls all do")


def spread(data: Data, claim: Claim) -> float:  # noqa: ARG001 - a decider's signature
    """Take the largest spread of the senders' rounds at the end of a run."""
    return float(data.select("round_spread", **NULLS)["value"].max())


def partial_senders(data: Data, claim: Claim) -> Decision:
    """Decide whether silent senders cost no more than the tolerance, on average over the sizes.

    The reference is the subgroup whose senders are those alone that send.
    """
    some, alone = {"pattern": "half silent"}, {"pattern": "half declared"}
    found = _multicast.ratios(data, "throughput", some, alone, **NULLS)
    text = f"times the throughput of these senders alone: {_multicast.listed(found)}"
    return Decision(bool(found.mean() >= 1 - claim.tolerance), text)


def low_overhead(data: Data, claim: Claim) -> Decision:
    """Decide whether nulls cost no more than the tolerance, on average over the sizes."""
    found = _multicast.ratios(data, "throughput", NULLS, NONE, pattern="continuous")
    text = f"times the throughput without nulls: {_multicast.listed(found)}"
    return Decision(bool(found.mean() >= 1 - claim.tolerance), text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no numbers to draw
    """Draw the throughput of each pattern with and without nulls, at the largest size."""
    fig, ax = figures.new(wide=True)
    nodes = max(data.values_of("nodes"))
    rates: dict[str, list[float]] = {}
    for series in ("batching", "batching+nulls"):
        points = [{"series": series, "nodes": nodes, "pattern": pattern} for pattern in PATTERNS]
        rates[_multicast.NAMES[series]] = [
            0.0 if data.value("stalls", **point) else data.value("throughput", "GB/s", **point)
            for point in points
        ]
    figures.bars(ax, [name for name, _ in PATTERNS.values()], rates)
    for container in ax.containers:
        texts = [f"{p.get_height():.2g}" if p.get_height() else "stalls" for p in container.patches]
        ax.bar_label(container, labels=texts, padding=1, fontsize=7)
    ax.set_ylabel(f"Throughput of {nodes} nodes (GB/s)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


experiment = Experiment(
    id="spindle/sec3_3_null_properties",
    title="Properties claimed or proved for the null-send scheme",
    profile="spindle",
    axes={
        "series": Axis(["batching", "batching+nulls"]),
        "pattern": Axis([*PATTERNS, RANDOM]),
        "nodes": Axis([2, 4, 8], full=[2, 4, 8, 16]),
    },
    where=where,
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "the random schedules are simulated",
        "verbs": "the random schedules are simulated",
    },
    decides={
        "spindle/nulls_no_stall": stalls,
        "spindle/nulls_quiescence": total("nulls_when_idle"),
        "spindle/nulls_round_spread": spread,
        "spindle/nulls_same_order": total("order_divergence"),
        "spindle/nulls_goal_partial_senders": partial_senders,
        "spindle/nulls_goal_low_overhead": low_overhead,
    },
)
