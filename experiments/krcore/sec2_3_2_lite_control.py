"""Connections of LITE to one server, by a manager and without one (section 2.3.2).

The original has a manager that makes one connection after another. KRCore's authors let the two
nodes make it by datagrams; `krcore/fig3a` and `krcore/fig8a` decide their numbers of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.krcore import _control
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTROL = {"decentral": "the two nodes", "central": "a manager, as in the original"}
MANY = 20
MANAGED = "the manager takes 20 ms for a connection, which is chosen to give the paper's rate"


def measure(point: Point) -> Any:
    """Measure clients that connect repeatedly, each time anew."""
    control: Any = point["control"]
    clients = int(point["clients"])
    # The manager makes 50 connections per second at most, the server 712.
    turn = clients / (40 if control == "central" else 500) + 0.1
    load = workload.KrcoreLiteConnect(clients=clients, control=control, warmup_ns=int(turn * 1e9))
    servers = 2 if control == "central" else 1
    with point.cluster(nodes=servers + min(clients, _control.CLIENT_NODES)) as cluster:
        result = cluster.run(load, duration_s=point.duration(2 * turn, 5 * turn))
    return {
        "rate": (result.value("rate"), "op/s"),
        "latency": (result.latency("connect").mean, "ns"),
    }


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw rate and latency over the clients."""
    fig, (left, right) = figures.new(1, 2)
    for number, (control, name) in enumerate(CONTROL.items()):
        rate = data.series("rate", "clients", "QP/s", control=control)
        latency = data.series("latency", "clients", "ms", control=control)
        style = figures.style_of(number)
        left.plot(list(rate.index), list(rate), label=name, **style)
        right.plot(list(latency.index), list(latency), label=name, **style)
    names = {"LITE_optimized": "the two nodes", "LITE_original": 'a manager, "tens"'}
    shown = [claims[f"krcore/{c}"] for c in ("lite_connect_rate", "lite_original_rate")]
    figures.overlay(left, [(claim, MANY) for claim in shown], unit="QP/s", names=names)
    figures.overlay(right, [(claims["krcore/lite_connect_latency"], 1)], unit="ms", names=names)
    left.set(ylabel="Connections per second")
    right.set(ylabel="Mean latency (ms)")
    for ax in (left, right):
        ax.set_yscale("log")
        ax.set(xlabel="Clients")
        ax.legend()
    return fig


experiment = Experiment(
    id="krcore/sec2_3_2_lite_control",
    title="Connections of LITE by a manager and without one",
    profile="krcore",
    axes={
        "control": Axis(list(CONTROL)),
        "clients": Axis([1, 4, MANY], full=[1, 2, 4, 8, 12, MANY], unit="clients"),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not=_control.WHY_NOT,
    decides={
        "krcore/lite_original_rate": decide.by_construction(
            decide.value("rate", control="central", clients=MANY), MANAGED
        ),
    },
)
