"""Goodput of 8 MiB requests with packets lost at random (table 4, section 6.4).

A lost packet costs the retransmission timeout of 5 ms, in which the one request waits. The run is
long enough for some losses, except at the two lowest probabilities of a quick run.

One more series has the preset ``best``, whose timeout follows the measured round trips and is at
least 300 us (``native/systems/erpc/round_trip.h``). It decides no claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import Undecidable
from experiments.erpc import _load, _misses
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOSSES = {1e-7: "1e7", 1e-6: "1e6", 1e-5: "1e5", 1e-4: "1e4", 1e-3: "1e3"}
SECONDS = {1e-7: (0.05, 2.0), 1e-6: (0.05, 2.0), 1e-5: (0.3, 2.0)}  # quick and full
SLOW = (1.0, 10.0)  # where requests are few
PAPER, BEST = "eRPC", "eRPC_best"
PRESETS = {PAPER: "paper", BEST: "best"}
NAMES = {PAPER: "eRPC, 8 MiB requests", BEST: "best: timeout by round trips"}
USABLE = 0.2  # of the goodput with the least loss: the paper's 18 of 73 Gbps is usable, 2.5 is not


def measure(point: Point) -> Any:
    """Measure the longest request with one probability of loss for each packet."""
    loss = point["loss"]
    span = point.duration(*SECONDS.get(loss, SLOW))
    result = _load.run(
        point,
        2,
        span,
        {"faults": {"loss": loss}},
        pattern="pairs",
        request=_load.LARGE,
        preset=PRESETS[point["series"]],
    )
    return {
        "bandwidth": (_load.LARGE / result.latency("rpc").mean * 1e9, "byte/s"),
        "retransmissions": (result.value("retransmissions"), "count"),
    }


def usable_up_to(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the highest probability with at least a fifth of the goodput at the lowest one."""
    found = data.series("bandwidth", "loss", "Gbps", series=PAPER)
    least = USABLE * float(found.iloc[0])
    usable = [float(p) for p in found.index if found[p] >= least]
    return Decision(None, max(usable), f"at least {least:.1f} Gbps")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the goodput against the probability, beside the paper's."""
    fig, ax = figures.new()
    for number, (series, name) in enumerate(NAMES.items()):
        figures.line(
            ax,
            data,
            "bandwidth",
            "loss",
            unit="Gbps",
            label=name,
            first=number,
            series=series,
        )
    numbers = [(claims[f"erpc/t4_loss_{key}"], loss) for loss, key in LOSSES.items()]
    figures.overlay(ax, numbers, unit="Gbps", names={"eRPC": "eRPC"})
    ax.set_xscale("log")
    ax.set(xlabel="Probability that a packet is lost", ylabel="Goodput (Gbps)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


TIMEOUTS = (
    "a request waits for fewer timeouts than in the paper: 0.48 at 1e-4 and 4.0 at 1e-3, with "
    "2,060 packets and as many credit returns. The claims leave 0.57 and 5.2, as more and "
    "shorter packets would give"
)

experiment = Experiment(
    id="erpc/table4",
    title="Throughput of 8 MiB requests with packet loss",
    profile="cx5_ib100",
    axes={"series": Axis(list(PRESETS)), "loss": Axis(list(LOSSES))},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "the copies of this machine's two cores set the goodput, not the loss",
        "verbs": "a real network loses no packets on demand",
    },
    decides={
        **{
            f"erpc/t4_loss_{key}": decide.value("bandwidth", series=PAPER, loss=loss)
            for loss, key in LOSSES.items()
        },
        "erpc/t4_usable_limit": usable_up_to,
        "erpc/t4_rdma_loss_limit": Undecidable("a statement about RDMA NICs, which it cites"),
    },
    misses={
        "erpc/t4_loss_1e7": _misses.COPIES,
        "erpc/t4_loss_1e6": _misses.COPIES,
        "erpc/t4_loss_1e5": _misses.COPIES,
        "erpc/t4_loss_1e4": TIMEOUTS,
        "erpc/t4_loss_1e3": TIMEOUTS,
    },
)
