"""Throughput of the key-value store against a model of Sherman (section 7.2, figure 5).

The store has room for 10 million keys of 8 bytes and holds 80 % of them; the writes are updates.
The paper does not state the mixed ratio, the ranges of nodes and threads and the number of locks.
Here they are 50 % reads, 2 to 8 nodes with 4 threads, 1 to 14 threads on 4 nodes, and 4096 locks.
With 14 threads the polling thread and the tracker have cores of their own among the 16. With 16 the
polling thread would share a core with a thread that holds locks, and all threads would wait for it.
Sherman is a model of its messages on the same fabric
(``native/systems/loco/baselines/sherman.h``), not its code. Scythe and Redis's cluster are left out
(``pyrdma bench loco_kv/`` measures Redis).

The claims are judged on the paper's protocol. An update takes four round trips: two for the lock
(the ticket, then now_serving), one for the write with its fence, one for the release. An update of
Sherman takes three: lock, leaf, and write with unlock. So Sherman is ahead on updates of uniform
keys, as in the paper, until its leaves fill the wire: 14 threads of 4 nodes read 1 KiB for each
update. With 50 % lookups, for which Sherman reads 1 KiB and LOCO 24 bytes, the two are level within
1 % on 4 threads. The paper has Sherman ahead there, but does not state the share of lookups. On
zipfian keys LOCO is ahead except with few threads. The ``best`` series turn on every switch that
makes the protocol better (``native/systems/loco/README.md``): an update takes two round trips, and
LOCO is ahead everywhere. Lookups have no such series, since a lookup takes no lock.

The paper supposes a cause for each rank. Three more series take the causes away from the model of
Sherman, one at a time: it reads only a key's entry instead of the leaf; it unlocks when the write
has ended; its locks between nodes are ticket locks (``_store.ABLATIONS``). A cause is one if at
least half of the lead goes with it.

Every point is measured in a steady state, also in quick mode. ``_store.settle_ns`` returns the time
until then, ``drift`` how much faster the second half of the measured time was than the first. Tens
of microseconds are not enough where operations queue at a lock. Zipfian changes begin at 17 M/s
with window 128. On 4 nodes of 4 threads nearly all operations in flight wait for the hottest key's
lock 12 ms later. That lock serves about 200,000 updates a second, one in 18 of all changes.
So the large window gains on zipfian changes with few threads alone. With 32 threads or more it
loses a third of the rate of window 3, because the lock's holder, too, looks at 128 operations
before it sees its own completion.
Where the large window saturates the polling threads, the presets are level: the best preset saves
waiting time, and 128 operations hide all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import each, needs
from experiments.loco import _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE = {"nodes": 4, "threads": 4}
LARGE = "sherman_w128"
CHANGES = ["mixed", "write-only"]
ABLATED: dict[str, tuple[list[str], list[str]]] = {  # mixes and distributions of the paper's claim
    "sherman, entry": (["read-only"], ["uniform", "zipfian"]),
    "sherman, late unlock": (CHANGES, ["uniform"]),
    "sherman, tickets": (CHANGES, ["zipfian"]),
}
PAPER_AHEAD = {
    (mix, distribution): f"{first} above {second}"
    for distribution, order in (("uniform", ("Sherman", "LOCO")), ("zipfian", ("LOCO", "Sherman")))
    for mix in ("read-only", *CHANGES)
    for first, second in [("LOCO", "Sherman") if mix == "read-only" else order]
}
"""The system ahead in the paper, whose text has no numbers of figure 5."""
QUEUED = "zipfian changes, once nearly all operations in flight wait for one lock"
LEVEL = "level with 50 % lookups: a lookup reads 1 KiB in Sherman, 24 bytes in LOCO"


def where(params: Mapping[str, Any]) -> bool:
    """Keep points that leave the base along one axis; Sherman's large window stays at the base.

    Ablations are measured where the paper supposes their cause.
    """
    mixes, distributions = ABLATED.get(params["series"], ([params["mix"]], [*_store.THETA]))
    if params["mix"] not in mixes or params["distribution"] not in distributions:
        return False
    if _store.is_paper_again(params["series"], params["mix"]):
        return False
    if params["series"] == LARGE:
        at: dict[str, Any] = {**BASE, "mix": "write-only", "distribution": "uniform"}
        return all(params[name] == value for name, value in at.items())
    away: int = sum(params[name] != value for name, value in BASE.items())
    return away <= 1


def measure(point: Point) -> Any:
    """Measure one mix of one system."""
    found = _store.rate(point, point["series"], point["mix"], point["distribution"])
    return {
        "kv_throughput": (found.value("rate"), "op/s"),
        "drift": (_store.drift(found), "fraction"),
    }


def ahead(
    first: str, second: str, mixes: list[str], distributions: list[str], reason: str = ""
) -> Callable[[Data, Claim], Decision]:
    """Decide whether `first` is ahead of `second` at most points of both axes, for each mix."""

    def decide(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        holds, texts = True, []
        for mix in mixes:
            for distribution in distributions:
                ratios = []
                for axis, other in (("nodes", "threads"), ("threads", "nodes")):
                    at: dict[str, Any] = {
                        "mix": mix,
                        "distribution": distribution,
                        other: BASE[other],
                    }
                    a = data.series("kv_throughput", axis, "Mop/s", series=first, **at)
                    b = data.series("kv_throughput", axis, "Mop/s", series=second, **at)
                    ratios += [float(a[x]) / float(b[x]) for x in a.index]
                wins, points = sum(r > 1 for r in ratios), len(ratios)
                holds = holds and 2 * wins > points
                texts.append(
                    f"{mix} {distribution}: ahead at {wins} of {points}, "
                    f"{min(ratios):.2f} to {max(ratios):.2f} times"
                )
        return Decision(holds, "; ".join(texts), reason)

    return decide


def comparable(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether both rates are within a factor of 2, either way, at every point.

    The two have the same window. LOCO's large window has no equal, since the paper's Sherman fails
    with it.
    """
    axes = ["mix", "distribution", "nodes", "threads"]
    loco, tree = (
        data.select("kv_throughput", series=series).groupby(axes)["value"].median()
        for series in ("loco_w3", "sherman")
    )
    both = loco / tree
    apart = both[(both < 0.5) | (both > 2)]
    return Decision(
        apart.empty,
        f"{both.min():.2f} to {both.max():.2f} times Sherman, {len(apart)} of {len(both)} points "
        "beyond a factor of 2",
    )


def large_window_fails(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether Sherman fails with a window of 128; a run that fails gives no rows."""
    rates = data.frame[(data.frame["series"] == LARGE) & (data.frame["metric"] == "kv_throughput")]
    text = ", ".join(f"{rate / 1e6:.1f} M/s" for rate in rates["value"])
    return Decision(
        rates.empty,
        f"updates of uniform keys with window 128: {text or 'none'}",
        "a model of Sherman's messages; the paper's errors were in its code; Scythe is not here",
    )


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - ranks alone
    """Draw a row of panels per mix and distribution: along nodes, along threads."""
    mixes = [m for m in _store.READS if m in data.values_of("mix")]
    shown = [
        (mix, distribution)
        for distribution in _store.THETA
        if distribution in data.values_of("distribution")
        for mix in mixes
    ]
    fig, panels = figures.new(4, 3, squeeze=False, height=7.4)
    for place, (mix, distribution) in enumerate(shown):
        row, column = 2 * (place // 3), place % 3
        for down, (axis, other) in enumerate((("nodes", "threads"), ("threads", "nodes"))):
            ax = panels[row + down][column]
            fixed: dict[str, Any] = {other: BASE[other]}
            for number, (series, name) in enumerate(_store.SERIES.items()):
                if _store.is_paper_again(series, mix):
                    continue
                figures.line(
                    ax,
                    data,
                    "kv_throughput",
                    axis,
                    unit="Mop/s",
                    label=name,
                    first=number,
                    series=series,
                    mix=mix,
                    distribution=distribution,
                    **fixed,
                )
            _axes.from_zero(ax)
            _axes.layer(ax)
            ax.set_xticks(data.values_of(axis))
            ax.set_xlabel(
                f"Nodes, {BASE['threads']} threads each"
                if axis == "nodes"
                else f"Threads of {BASE['nodes']} nodes"
            )
            ax.set_title(f"{mix}, {distribution}, by {axis}")
            figures.paper_says(ax, PAPER_AHEAD[mix, distribution])
    for line in panels:
        line[0].set_ylabel("Throughput (M/s)")
    figures.legend_below(list(panels.flat))
    return fig


def without(ablation: str, first: str, second: str) -> decide.Decider:
    """Decide whether the lead of `first` over `second` goes with what `ablation` takes away."""
    mixes, distributions = ABLATED[ablation]
    left = tuple({"series": ablation if s == "sherman" else s} for s in (first, second))
    return decide.cause(
        "kv_throughput",
        ahead=({"series": first}, {"series": second}),
        without=(left[0], left[1]),
        mix=mixes,
        distribution=distributions,
    )


CHANGED_RANKS: dict[str, decide.Decider] = {
    "loco/fig5_mixed_uniform_rank": ahead("sherman", "loco_w3", ["mixed"], ["uniform"], LEVEL),
    "loco/fig5_write_uniform_rank": ahead("sherman", "loco_w3", ["write-only"], ["uniform"]),
    "loco/fig5_mixed_zipf_rank": ahead("loco_w3", "sherman", ["mixed"], ["zipfian"]),
    "loco/fig5_write_zipf_rank": ahead("loco_w3", "sherman", ["write-only"], ["zipfian"]),
}
experiment = Experiment(
    id="loco/fig5",
    title="Throughput of the key-value store",
    profile="c6525-25g",
    axes={
        "series": Axis([*_store.SERIES, LARGE, *_store.ABLATIONS]),
        "mix": Axis(list(_store.READS)),
        "distribution": Axis(list(_store.THETA)),
        "nodes": Axis([2, 4, 8], full=[2, 3, 4, 5, 6, 7, 8]),
        "threads": Axis([1, 4, 8], full=[1, 2, 4, 8, 14]),
    },
    where=where,
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "several nodes of 4 threads need a core each; see pyrdma bench loco_kv/"},
    decides={
        "loco/fig5_read_only_rank": ahead(
            "loco_w3", "sherman", ["read-only"], ["uniform", "zipfian"]
        ),
        **CHANGED_RANKS,
        "loco/fig5_distribution_reversal": decide.all_of(CHANGED_RANKS),
        "loco/fig5_large_window_gain": ahead(
            "loco_w128", "loco_w3", list(_store.READS), list(_store.THETA), QUEUED
        ),
        "loco/fig5_full_bandwidth": comparable,
        "loco/fig5_reason_read": without("sherman, entry", "loco_w3", "sherman"),
        "loco/fig5_reason_zipf": without("sherman, tickets", "loco_w3", "sherman"),
        "loco/fig5_reason_uniform": without("sherman, late unlock", "sherman", "loco_w3"),
        **each(
            ["loco/fig5_scythe_updates"],
            needs("Scythe's code, which this project does not have"),
        ),
        "loco/fig5_other_windows_fail": large_window_fails,
    },
)
