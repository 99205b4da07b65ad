"""Headline results of abstract, introduction and section 4.

Figures 6, 7, 9 and 10 measure the same in more points. Connections are those of a server whose
replicas lie in groups of four servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.tailwind import _misses, _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEAVY, EQUAL = 500e3, 450e3  # op/s
LOADS = (2, 4, 8, 12, 16, 20, 24, 30)
SIZES = (4, 8, 12)  # servers
ROLLS_S = 0.12
"""In this time each server fills a segment of 8 MiB and more."""


def where(params: Mapping[str, Any]) -> bool:
    """Keep updates alone below 30 clients, and Tailwind alone where the servers count."""
    if params["servers"] != _store.SERVERS:
        is_load = params["clients"] == 8 and params["puts"] == 1.0
        return bool(is_load and params["series"] == "tailwind")
    return bool(params["puts"] == 1.0 or params["clients"] == _store.CLIENTS)


def measure(point: Point) -> Any:
    """Measure one load."""
    puts, servers = point["puts"], point["servers"]
    counts_rpcs = (point["series"], puts, point["clients"]) == ("tailwind", 1.0, _store.CLIENTS)
    result = _store.run(
        point,
        point["clients"],
        puts,
        point["series"],
        servers=servers,
        placement="groups",
        seconds=ROLLS_S if counts_rpcs else 0.003,
    )
    found = _store.measured(result, puts, servers)
    connections = [s.value for s in result.samples if s.metric == "log_connections"]
    writes = _store.total(result, "replication_writes")
    control = _store.total(result, "control_rpcs")
    found["server_connections"] = (max(connections), "count")
    found["backup_rpcs"] = (_store.total(result, "replication_rpcs"), "count")
    if writes > 0:
        found["rpc_fraction"] = (control / (control + writes), "fraction")
    return found


def latency_ratio(percentile: int) -> Any:
    """Compare the latencies under heavy load."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        metric = f"put_p{percentile}"
        a, b = (
            _store.interpolated(data, metric, HEAVY, "us", series=s, puts=1.0, servers=4)
            for s in _store.SYSTEMS
        )
        return Decision(None, a / b, f"{a:.1f} to {b:.1f} us")

    return decider


def core_ratio(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the busy cores at equal throughput."""
    a, b = (
        sum(
            _store.interpolated(data, kind, EQUAL, "cores", series=s, puts=1.0, servers=4)
            for kind in ("worker_cores", "dispatch_cores")
        )
        for s in _store.SYSTEMS
    )
    return Decision(None, b / a, f"{b:.1f} to {a:.1f} cores")


def groups_scale(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the primaries that write to a backup stay as many as the cluster grows."""
    found = data.series("server_connections", "servers", series="tailwind", clients=8, puts=1.0)
    text = ", ".join(f"{int(n)} servers: {value:.0f}" for n, value in found.items())
    return Decision(bool(found.max() - found.min() <= 2), text)


def backups_idle(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Return the CPU that backups spend on data, in percent: no RPC brings any."""
    rpcs = data.value("backup_rpcs", series="tailwind", puts=1.0, clients=30, servers=4)
    return Decision(None, 0.0 if rpcs == 0 else 100.0, f"{rpcs:.0f} RPCs with data")


def gain(puts: float) -> Any:
    """Compare the throughputs at 30 clients."""
    of, to = {"series": "tailwind"}, {"series": "ramcloud"}
    return _store.change("throughput", of, to, puts=puts, clients=30, servers=4)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw throughput at 30 clients, and the latencies over the load."""
    fig, (left, middle, right) = figures.new(1, 3)
    mixes = list(_store.MIXES)
    for number, system in enumerate(_store.SYSTEMS):
        rates = [
            data.value(
                "throughput_per_server", "KOp/s", series=system, puts=puts, clients=30, servers=4
            )
            for puts in mixes
        ]
        places = [place + 0.4 * number for place in range(len(mixes))]
        shade = ("0.35", "0.75")[number]
        name = _store.NAMES[system]
        left.bar(places, rates, width=0.4, color=shade, edgecolor="black", label=name)
        for ax, p in ((middle, 50), (right, 99)):
            where = {"series": system, "puts": 1.0, "servers": 4}
            found = data.series("throughput", "clients", "op/s", **where) / 1e3
            values = data.series(f"put_p{p}", "clients", "us", **where)
            ax.plot(list(found), list(values), label=name, **figures.style_of(number))
    left.set_xticks([place + 0.2 for place in range(len(mixes))], list(_store.MIXES.values()))
    left.set_ylabel("Throughput per server (KOp/s)")
    for ax, metric, name in ((middle, "median", "Median"), (right, "p99", "99th percentile")):
        points = [(claims[f"tailwind/head_{metric}_{s}"], HEAVY / 1e3) for s in _store.SYSTEMS]
        figures.overlay(ax, points, unit="us", names=_store.NAMES)
        ax.set(xlabel="Throughput of four servers (KOp/s)", ylabel=f"{name} of PUTs (µs)")
    _axes.from_zero(left)
    _axes.logarithmic(middle, right)
    left.legend()
    figures.legend_below((middle,))
    return fig


def heavy(system: str, percentile: int) -> Any:
    """Return the decider of one latency under heavy load."""
    metric = f"put_p{percentile}"
    return _store.at_load(metric, HEAVY, "us", series=system, puts=1.0, servers=4)


experiment = Experiment(
    id="tailwind/headline",
    title="Headline results",
    profile="r320",
    axes={
        "series": Axis(_store.SYSTEMS),
        "puts": Axis(list(_store.MIXES)),
        "servers": Axis(SIZES),
        "clients": Axis(LOADS),
    },
    where=where,
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/head_throughput_ratio": decide.ratio(
            "throughput",
            {"series": "tailwind"},
            {"series": "ramcloud"},
            puts=0.5,
            clients=30,
            servers=4,
        ),
        "tailwind/head_median_ratio": latency_ratio(50),
        "tailwind/head_p99_ratio": latency_ratio(99),
        "tailwind/head_write_heavy_gain": gain(0.5),
        "tailwind/head_read_heavy_gain": gain(0.05),
        "tailwind/head_median_ramcloud": heavy("ramcloud", 50),
        "tailwind/head_median_tailwind": heavy("tailwind", 50),
        "tailwind/head_p99_ramcloud": heavy("ramcloud", 99),
        "tailwind/head_p99_tailwind": heavy("tailwind", 99),
        "tailwind/head_cores_third": core_ratio,
        "tailwind/head_rpc_fraction": decide.value(
            "rpc_fraction", series="tailwind", puts=1.0, clients=30, servers=4
        ),
        "tailwind/head_replication_cpu": decide.value(
            "replication_share", series="ramcloud", puts=1.0, clients=30, servers=4
        ),
        "tailwind/head_connections_scale": decide.by_construction(
            groups_scale, "replicas are placed in groups of four servers"
        ),
        "tailwind/head_backup_cpu_idle": backups_idle,
    },
    misses=_misses.of("head"),
)
