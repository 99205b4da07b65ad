"""Size of a meta server's table, and time of a look-up in it (section 4.2).

A look-up is two READs of the meta server. Its time is that of a connect without cached metadata
less that of one with them, which has the same system call.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _control, _misses
from pyrdma import Axis, Experiment, Point, Row, decide, figures
from pyrdma import krcore as service
from pyrdma._native import native
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MANY = 240
SIZES = (10, 100, 1000, 10_000)


def measure(point: Point) -> list[Row]:
    """Measure look-ups by so many clients, and count the bytes of tables."""
    core: Any = native()
    clients = int(point["clients"])
    miss = _control.virtual(point, clients).latency("connect").mean
    hit = _control.virtual(point, clients, cached=True).latency("connect").mean
    rows = [Row("look_up", miss - hit, "ns")]
    if clients == MANY:
        sizes = {n: float(core.krcore.meta_table_bytes(n)) for n in SIZES}
        rows += [Row("table", size, "B", {"known": n}) for n, size in sizes.items()]
        rows += [
            Row("values", float(n * core.krcore.dct_meta_bytes), "B", {"known": n}) for n in SIZES
        ]
        default = inspect.signature(service.Service).parameters["lease_s"].default
        rows.append(Row("lease", float(default), "s"))
    return rows


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the table over the cluster's size, and the look-up over the clients."""
    fig, (left, right) = figures.new(1, 2)
    for number, (metric, name) in enumerate(
        {"table": "table, with keys and checksums", "values": "values alone, 12 B"}.items()
    ):
        found = data.series(metric, "known", "KB", clients=MANY)
        left.plot(list(found.index), list(found), label=name, **figures.style_of(number))
    figures.overlay(left, [(claims["krcore/meta_server_1000"], 1000)], unit="KB")
    left.set_xscale("log")
    _axes.logarithmic(left)
    left.set(xlabel="Nodes of the cluster", ylabel="Memory of a meta server (KB)")
    found = data.series("look_up", "clients", "us")
    right.plot(list(found.index), list(found), label="two READs", **figures.style_of(0))
    figures.overlay(
        right,
        [(claims["krcore/meta_lookup_time"], MANY)],
        unit="us",
        names={"KRCore": '"several µs"'},
    )
    right.set(xlabel="Clients that connect", ylabel="Mean time of a look-up (µs)")
    _axes.from_zero(right)
    for ax in (left, right):
        ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/meta_server_1000": decide.value("table", clients=MANY, known=1000),
    "krcore/meta_lookup_time": decide.value("look_up", clients=MANY),
    "krcore/mr_lease": decide.by_construction(
        decide.value("lease", clients=MANY), "the service's lease is the paper's example"
    ),
}

experiment = Experiment(
    id="krcore/sec4_2_metadata",
    title="Size and speed of a meta server",
    profile="krcore",
    axes={"clients": Axis([1, 80, MANY], full=[1, 10, 40, 80, 160, MANY], unit="clients")},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "240 clients need 240 cores; fabric/rate measures this machine's own rates"},
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
