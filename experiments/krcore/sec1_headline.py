"""The numbers of abstract and introduction: time of a connection, memory of the pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable
from experiments.krcore import _control, _memory, _misses
from pyrdma import Axis, Experiment, Point, Row, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = ("verbs", "LITE", "KRCore")
KRCORE = {"series": "KRCore"}
CORES = 24
NODES = (10, 100, 1000, 10_000)


def measure(point: Point) -> list[Row]:
    """Measure one connection, and count the queue pairs of KRCore's node."""
    series = str(point["series"])
    rows = [Row("connect", _control.one(point, series), "ns")]
    if series == "KRCore":
        result = _control.virtual(point, 1)
        pairs = next(s.value for s in result.samples if s.metric == "queue_pairs" and s.node == 0)
        queues = _memory.pool(round(pairs), CORES)
        rows.append(Row("queue_pairs", pairs, "count"))
        rows.extend(Row("queues", queues, "B", {"known": nodes}) for nodes in NODES)
        rows.extend(Row("metadata", _memory.metadata(n), "B", {"known": n}) for n in NODES)
    return rows


def constant(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the queues are constant, and the rest 12 B for each known node."""
    queues, metadata = (data.series(m, "known", "B", **KRCORE) for m in ("queues", "metadata"))
    each = {float(size) / float(nodes) for nodes, size in metadata.items()}
    text = f"{queues.iloc[0] / 1e6:.1f} MB and {max(each):g} B for each node"
    return Decision(bool(queues.max() == queues.min() and each == {12.0}), text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the connections' times, and the pool's memory over the cluster."""
    fig, (left, right) = figures.new(1, 2)
    times = [data.value("connect", "us", series=s) for s in SERIES]
    figures.bars(left, list(SERIES), {"measured": times}, values="{:,.1f}", log=True)
    figures.overlay(
        left,
        [
            (claims["krcore/verbs_connect_latency"], 0),
            (claims["krcore/lite_connect_latency"], 1),
            (claims["krcore/headline_connect_bound"], 2),
        ],
        unit="us",
        names={"LITE_optimized": "LITE", "KRCore": "KRCore, upper bound"},
    )
    left.set(ylabel="Time of a connection (µs)", ylim=(1, 1e5))
    queues = data.series("queues", "known", "MB", **KRCORE)
    metadata = data.series("metadata", "known", "MB", **KRCORE)
    nodes = list(queues.index)
    for number, (name, values) in enumerate({"queues": queues, "metadata": metadata}.items()):
        right.plot(nodes, list(values), label=name, **figures.style_of(number))
    figures.overlay(
        right,
        [(claims["krcore/headline_pool_memory"], NODES[-1])],
        unit="MB",
        names={"KRCore": "the pool, for example"},
    )
    right.set_xscale("log")
    _axes.logarithmic(right)
    right.set(xlabel="Nodes of the cluster", ylabel="Memory of a pool (MB), computed")
    left.legend()
    right.legend()
    return fig


def share(other: str) -> Any:
    """Compare KRCore's time with that of another system, in the claim's unit."""
    return decide.ratio("connect", KRCORE, {"series": other})


DECIDES: dict[str, Any] = {
    "krcore/headline_connect_bound": decide.value("connect", **KRCORE),
    "krcore/headline_speedup_verbs": decide.ratio("connect", {"series": "verbs"}, KRCORE),
    "krcore/headline_pct_of_verbs": share("verbs"),
    "krcore/headline_pct_of_lite": share("LITE"),
    "krcore/headline_pool_memory": decide.value("queues", known=NODES[-1], **KRCORE),
    "krcore/pool_memory_constant": decide.by_construction(
        constant, "the pool is made at boot, and a record of the metadata has 12 B"
    ),
    "krcore/prod_cluster_size": Undecidable("a number of other publications, which it cites"),
}

experiment = Experiment(
    id="krcore/sec1_headline",
    title="Time of a connection and memory of the pool",
    profile="krcore",
    axes={"series": Axis(SERIES)},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not=_control.WHY_NOT,
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
