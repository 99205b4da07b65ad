"""Rate and latency of connections, with 1 to 240 clients of one server (section 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _control, _misses
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SERIES = (*_control.SERIES, "KRCore")
MANY = 240
ORDERS = 100
"""The least factor that is "several orders of magnitude"."""


def measure(point: Point) -> Any:
    """Measure clients that connect repeatedly, once they queue evenly at the server."""
    clients = int(point["clients"])
    found: dict[str, tuple[float, str]] = {}
    if point["series"] == "KRCore":
        result = _control.virtual(point, clients)
        # Counted over the whole run, the first connect of each client included.
        reads = _control.total(result, "meta_reads") / _control.total(result, "connects")
        found["reads_per_connect"] = (reads, "count")
    else:
        # A round of all clients takes at least clients/712 s: one round warms up, the next are
        # measured.
        turn = clients / 712 + 0.02
        result = _control.connect(
            point, clients, point["series"], point.duration(2 * turn, 5 * turn), turn
        )
    found["connect_rate"] = (result.value("rate"), "op/s")
    found["connect_latency"] = (result.latency("connect").mean, "ns")
    return found


def order(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide the rank at both ends: KRCore is orders of magnitude below LITE, LITE below verbs.

    At 240 clients the server's NIC limits verbs and LITE alike, and LITE need not be below.
    """
    holds, texts = True, []
    for clients in (1, MANY):
        verbs, lite, own = (
            data.value("connect_latency", "ms", series=s, clients=clients) for s in SERIES
        )
        holds = holds and ORDERS * own < lite and (lite < verbs or clients == MANY)
        texts.append(f"{clients} clients: {own * 1e3:.1f} us, {lite:.3g} ms, {verbs:.3g} ms")
    return Decision(holds, "; ".join(texts))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw latency against rate, as the paper does, with its end points."""
    fig, ax = figures.new()
    for number, series in enumerate(SERIES):
        rate = data.series("connect_rate", "clients", "connections/s", series=series)
        latency = data.series("connect_latency", "clients", "ms", series=series)
        ax.plot(rate.to_list(), latency.to_list(), label=series, **figures.style_of(number))
    _axes.layer(ax)
    first = {s: claims[f"krcore/f8a_{s.lower()}_1"] for s in SERIES}
    # The rate of one client in a closed loop follows from its latency.
    points = [(c, (1e6 if c.unit == "us" else 1e3) / c.number) for c in first.values() if c.number]
    figures.overlay(ax, points, unit="ms", names={s: f"{s}, 1 client" for s in first})
    peaks = {"verbs": ("verbs, LITE", "--"), "krcore": ("KRCore", ":")}
    for name, (shown, line) in peaks.items():
        peak = claims[f"krcore/f8a_{name}_240"].number
        if peak is not None:
            label = f"paper: {shown}, {MANY} clients"
            ax.axvline(peak, color="black", linewidth=1, linestyle=line, label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(xlabel="Connections per second", ylabel="Mean latency (ms)", xlim=(30, 1e8))
    ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/f8a_verbs_1": decide.value("connect_latency", series="verbs", clients=1),
    "krcore/f8a_lite_1": decide.value("connect_latency", series="LITE", clients=1),
    "krcore/f8a_verbs_240": decide.value("connect_rate", series="verbs", clients=240),
    "krcore/f8a_lite_240": decide.value("connect_rate", series="LITE", clients=240),
    "krcore/lite_connect_rate": decide.value("connect_rate", series="LITE", clients=240),
    "krcore/f8a_krcore_1": decide.value("connect_latency", series="KRCore", clients=1),
    "krcore/f8a_krcore_240": decide.value("connect_rate", series="KRCore", clients=MANY),
    "krcore/f8a_meta_reads": decide.value("reads_per_connect", series="KRCore", clients=MANY),
    "krcore/f8a_rank": order,
}

experiment = Experiment(
    id="krcore/fig8a",
    title="Single-connection set-up: latency against throughput",
    profile="krcore",
    axes={
        "series": Axis(SERIES),
        "clients": Axis([1, 4, 16, 240], full=[1, 2, 4, 8, 16, 40, 80, 160, 240], unit="clients"),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not=_control.WHY_NOT,
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
