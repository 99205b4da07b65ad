"""Rate and latency of connections, with 1 to 240 clients of one server (section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments._needs import each, needs
from experiments.krcore import _control
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def measure(point: Point) -> Any:
    """Measure clients that connect repeatedly, once they queue evenly at the server."""
    clients = int(point["clients"])
    # A round of all clients takes at least clients/712 s: one round warms up, the next are
    # measured.
    turn = clients / 712 + 0.02
    result = _control.connect(
        point, clients, point["series"], point.duration(2 * turn, 5 * turn), turn
    )
    return {
        "connect_rate": (result.value("rate"), "op/s"),
        "connect_latency": (result.latency("connect").mean, "ns"),
    }


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw latency against rate, as the paper does, with its end points."""
    fig, ax = figures.new()
    for number, series in enumerate(_control.SERIES):
        rate = data.series("connect_rate", "clients", "connections/s", series=series)
        latency = data.series("connect_latency", "clients", "ms", series=series)
        ax.plot(rate.to_list(), latency.to_list(), label=series, **figures.style_of(number))
    first = {"verbs": claims["krcore/f8a_verbs_1"], "LITE": claims["krcore/f8a_lite_1"]}
    # The rate of one client in a closed loop follows from its latency.
    points = [(c, 1000 / c.number) for c in first.values() if c.number]
    figures.overlay(ax, points, unit="ms", names={s: f"{s}, 1 client" for s in first})
    peak = claims["krcore/f8a_verbs_240"].number
    if peak is not None:
        ax.axvline(
            peak,
            color="black",
            linewidth=1,
            linestyle="--",
            label=f"paper: {peak:g}/s at 240 clients, both",
        )
    ax.set_yscale("log")
    ax.set(
        xlabel="Connections per second", ylabel="Mean latency (ms)", xlim=(0, 850), ylim=(1, 2000)
    )
    ax.legend(loc="upper left")
    return fig


experiment = Experiment(
    id="krcore/fig8a",
    title="Single-connection set-up: latency against throughput",
    profile="krcore",
    axes={
        "series": Axis(_control.SERIES),
        "clients": Axis([1, 4, 16, 240], full=[1, 2, 4, 8, 16, 40, 80, 160, 240], unit="clients"),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "shared memory has no NIC that sets queue pairs up"},
    decides={
        "krcore/f8a_verbs_1": decide.value("connect_latency", series="verbs", clients=1),
        "krcore/f8a_lite_1": decide.value("connect_latency", series="LITE", clients=1),
        "krcore/f8a_verbs_240": decide.value("connect_rate", series="verbs", clients=240),
        "krcore/f8a_lite_240": decide.value("connect_rate", series="LITE", clients=240),
        "krcore/lite_connect_rate": decide.value("connect_rate", series="LITE", clients=240),
        "krcore/lite_original_rate": needs("LITE's centralised manager, which is not built yet"),
        **each(
            [
                "krcore/f8a_krcore_1",
                "krcore/f8a_krcore_240",
                "krcore/f8a_meta_reads",
                "krcore/f8a_rank",
            ],
            needs("KRCore, which is not built yet"),
        ),
    },
)
