"""Runs of `tailwind_store` as the paper's section 4 has them, with deciders and figures.

Four servers have one dispatch thread and up to seven workers each; a client machine has one request
under way; keys of 30 B and values of 100 B are drawn by a Zipfian law (theta 0.99), three replicas.
A quick run has 100,000 objects, a full one 20 million.

Two sets of CPU costs are drawn. ``measured``: the steps of our own code, as `pyrdma calibrate
scopes` counts them. ``ramcloud``: ours, and beyond them so much that a simulated cluster of
RAMCloud's own clock (2.93 GHz) answers what RAMCloud's authors have published of theirs: 948,000
reads per second of one server, and durable writes of 13.5 us (Ousterhout et al., "The RAMCloud
Storage System", ACM TOCS 2015). That takes 200 ns for each message that a thread sends or takes,
and 1,700 ns for an update; both are scaled to the 2.1 GHz of this testbed. No number of Tailwind's
paper is used. The claims are judged on ``ramcloud``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyrdma import Axis, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data, NotEvaluated
from pyrdma.decide import Decider, Decision
from pyrdma.result import Result

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CLIENTS",
    "COSTS",
    "FABRICS",
    "MIXES",
    "NAMES",
    "SERVERS",
    "SYSTEMS",
    "WHY_NOT",
    "at_load",
    "change",
    "draw",
    "gains",
    "measured",
    "run",
]

SERVERS = 4
CLIENTS = 30
SYSTEMS = ("ramcloud", "tailwind")
NAMES = {"ramcloud": "RAMCloud", "tailwind": "Tailwind"}
COSTS = {"ramcloud": "RAMCloud's costs", "measured": "our code's costs"}
MIXES = {0.05: "5 % PUT", 0.5: "50 % PUT", 1.0: "100 % PUT"}
CLOCK = 2.93 / 2.1
"""Of RAMCloud's testbed to this one's."""
WORK = {
    "ramcloud": {"dispatch_ns": round(200 * CLOCK), "write_ns": round(1700 * CLOCK)},
    "measured": {"dispatch_ns": 0, "write_ns": 0},
}
FABRICS = ("sim", "verbs")
WHY_NOT = {"shm": "four servers of up to eight threads each need a machine of 40 cores"}


def run(
    point: Point,
    clients: int,
    puts: float,
    replication: Any,
    costs: str = "ramcloud",
    seconds: float = 0.003,
    **load: Any,
) -> Result:
    """Run one load; ``puts`` is the fraction of updates."""
    servers = load.pop("servers", SERVERS)
    keys = 100_000 if point.quick else 20_000_000
    settings = {
        "keys": keys,
        "log_bytes": (32 << 20) + keys * 256 // servers + (int(2e6 * puts * 400) if puts else 0),
        "preload": "replicated" if point.quick else "local",
        **WORK[costs],
        **load,
    }
    with point.cluster(nodes=servers + 1 + clients) as cluster:
        return cluster.run(
            workload.TailwindStore(
                servers=servers, replication=replication, reads=1 - puts, **settings
            ),
            duration_s=point.duration(seconds, 10 * seconds),
            timeout_s=7200,
        )


def total(result: Result, metric: str) -> float:
    """Return the sum of a metric over the servers."""
    return float(sum(s.value for s in result.samples if s.metric == metric))


def measured(result: Result, puts: float, servers: int = SERVERS) -> dict[str, tuple[float, str]]:
    """Return throughput, latency and busy cores."""
    found = {
        "throughput": (result.value("rate"), "op/s"),
        "throughput_per_server": (result.value("rate") / servers, "op/s"),
        "worker_cores": (total(result, "worker_cores"), "cores"),
        "dispatch_cores": (total(result, "dispatch_cores"), "cores"),
        "replication_cores": (total(result, "replication_cores"), "cores"),
    }
    workers = found["worker_cores"][0]
    if workers > 0:
        share = found["replication_cores"][0] / workers
        found["replication_share"] = (share, "fraction")
    if puts > 0:
        latency = result.latency("put")
        found["put_p50"] = (latency.percentile(50), "ns")
        found["put_p99"] = (latency.percentile(99), "ns")
    return found


def change(metric: str, of: Mapping[str, Any], to: Mapping[str, Any], **where: Any) -> Decider:
    """Compare the change from one point to another with the claim, in percent."""
    return decide.ratio(metric, of, to, form="excess", **where)


def gains(data: Data, metric: str, over: str, **where: Any) -> pd.Series:
    """Return Tailwind's excess over RAMCloud, in percent, along a parameter."""
    of, to = (data.series(metric, over, series=system, **where) for system in reversed(SYSTEMS))
    return 100 * (of / to - 1)


def at_load(metric: str, load: float, unit: str, **where: Any) -> Decider:
    """Interpolate a metric, over the number of clients, at a throughput of the cluster."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        return Decision(None, interpolated(data, metric, load, unit, **where))

    return decider


def interpolated(data: Data, metric: str, load: float, unit: str, **where: Any) -> float:
    """Return a metric at a throughput in op/s, by lines between the measured points."""
    rates = data.series("throughput", "clients", "op/s", **where)
    values = data.series(metric, "clients", unit, **where)
    for before, after in zip(list(rates.index), list(rates.index)[1:], strict=False):
        low, high = float(rates[before]), float(rates[after])
        if low <= load <= high:
            share = (load - low) / (high - low)
            return float(values[before] + share * (values[after] - values[before]))
    raise NotEvaluated(
        f"the throughputs of {where} are {rates.min() / 1e3:.0f} to {rates.max() / 1e3:.0f} KOp/s, "
        f"and {load / 1e3:.0f} is not among them"
    )


def draw(
    ax: Any,
    data: Data,
    metric: str,
    over: str,
    unit: str,
    systems: Sequence[str] = SYSTEMS,
    scale: float = 1.0,
    costs: Iterable[str] = tuple(COSTS),
    **where: Any,
) -> None:
    """Draw a line for each system: solid with RAMCloud's costs, thin and dotted with ours."""
    for number, system in enumerate(systems):
        for cost in costs:
            found = data.series(metric, over, unit, series=system, costs=cost, **where) * scale
            style = dict(figures.style_of(number))
            label = NAMES[system]
            if cost == "measured":
                style.update(linestyle=":", linewidth=1.0, markersize=3)
                label += ", our costs"
            ax.plot(list(found.index), list(found), label=label, **style)


def axes_of(clients: Sequence[int], full: Sequence[int]) -> dict[str, Axis]:
    """Return the axes that most figures share."""
    return {
        "series": Axis(SYSTEMS),
        "costs": Axis(list(COSTS)),
        "clients": Axis(clients, full=full),
    }
