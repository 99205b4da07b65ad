"""The transfer of a payload between two functions, the second one started later (section 5.3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _control, _misses
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SERIES = ("verbs", "KRCore")


def measure(point: Point) -> dict[str, tuple[float, str]]:
    """Measure what both functions need: to set up, and to connect and read."""
    load = workload.KrcoreTransfer(
        system="verbs" if point["series"] == "verbs" else "krcore",
        payload=int(point["payload"]) << 10,
        rounds=4 if point.quick else 16,
    )
    with point.cluster(nodes=3) as cluster:
        result = cluster.run(load)
    ends = [result.latency(end).mean for end in ("sender", "receiver")]
    return {"transfer_time": (sum(ends), "ns"), "receiver_time": (ends[1], "ns")}


def times(data: Data) -> tuple[Any, Any]:
    """Return the times of verbs and of KRCore in ms, by payload."""
    verbs, own = (data.series("transfer_time", "payload", "ms", series=s) for s in SERIES)
    return verbs, own


def verbs_time(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the mean over the payloads, since the paper does not name one."""
    verbs, _ = times(data)
    return Decision(None, float(verbs.mean()), f"{verbs.min():.1f} to {verbs.max():.1f} ms")


def own_time(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the mean over the payloads, since the paper does not name one."""
    _, own = times(data)
    text = f"{own.min() * 1e3:.1f} to {own.max() * 1e3:.1f} us"
    return Decision(None, float(own.mean()), text)


def reduction(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the mean reduction over the payloads."""
    verbs, own = times(data)
    found = 100 * (1 - own / verbs)
    return Decision(None, float(found.mean()), f"{found.min():.2f} to {found.max():.2f} %")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw both systems, with the paper's values as lines: it names no payload for them."""
    fig, ax = figures.new()
    for number, series in enumerate(SERIES):
        found = data.series("transfer_time", "payload", "ms", series=series)
        style = figures.style_of(number)
        ax.plot(found.index.to_list(), found.to_list(), label=series, **style)
    for name, line in (("f12b_verbs", "--"), ("f12b_krcore", ":")):
        claim = claims[f"krcore/{name}"]
        if claim.number is not None:
            ax.axhline(
                claim.number,
                color="black",
                linewidth=1,
                linestyle=line,
                label=f"paper: {claim.series}",
            )
    _axes.layer(ax)
    ax.set_yscale("log")
    ax.set(xlabel="Payload (KB)", ylabel="Transfer time (ms)", ylim=(5e-3, 2e2))
    ax.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/f12b_verbs": verbs_time,
    "krcore/f12b_krcore": own_time,
    "krcore/f12b_reduction": reduction,
    "krcore/headline_serverless": reduction,
}

experiment = Experiment(
    id="krcore/fig12b",
    title="Transfer of a payload between two functions, without the container's start",
    profile="krcore",
    axes={
        "series": Axis(SERIES),
        "payload": Axis([1, 5, 9], full=list(range(1, 10)), unit="KB"),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not=_control.WHY_NOT,
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
