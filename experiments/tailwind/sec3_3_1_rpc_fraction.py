"""Share of replication requests that are RPCs (section 3.3.1).

The paper divides: two RPCs for a buffer of 8 MiB that objects of 100 B fill. ``computed`` does the
same; ``counted`` is what one client's PUTs lead to, with headers, keys, results and checksums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.tailwind import _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OBJECT = 100  # bytes
PAPER = 8 << 20
COUNTED = {True: 256 << 10, False: 1 << 20}
"""Largest buffer that is filled, in a quick and in a full run."""


def measure(point: Point) -> Any:
    """Compute the share for a buffer, and count it for small ones."""
    size = point["buffer"]
    found = {"computed": (2 / (size / OBJECT), "fraction")}
    if size <= COUNTED[point.quick]:
        seconds = size / 200 * 12e-6 * 6  # some buffers of four servers
        result = _store.run(
            point,
            4,
            1.0,
            "tailwind",
            segment_bytes=size,
            keys=1000,
            preload="replicated",
            seconds=seconds,
            log_bytes=64 << 20,
        )
        rpcs = _store.total(result, "control_rpcs")
        writes = _store.total(result, "replication_writes")
        found["counted"] = (rpcs / (rpcs + writes), "fraction")
    return found


def falls(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the counted share falls with the buffer, as the computed one does."""
    found = data.series("counted", "buffer")
    text = ", ".join(f"{int(size) >> 10} KiB: {share:.1e}" for size, share in found.items())
    return Decision(bool((found.diff().dropna() < 0).all()), text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw both shares over the size of a buffer."""
    fig, ax = figures.new()
    for number, metric in enumerate(("computed", "counted")):
        found = data.series(metric, "buffer")
        ax.plot(list(found.index), list(found), label=metric, **figures.style_of(number))
    figures.overlay(ax, [(claims["tailwind/rpc_fraction_8mb_100b"], PAPER)], unit="fraction")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set(xlabel="Buffer (B)", ylabel="Share of RPCs")
    ax.legend()
    return fig


experiment = Experiment(
    id="tailwind/sec3_3_1_rpc_fraction",
    title="Share of replication requests that are RPCs",
    profile="r320",
    axes={"buffer": Axis([64 << 10, 128 << 10, 256 << 10, 1 << 20, PAPER], unit="B")},
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/rpc_fraction_8mb_100b": decide.by_construction(
            decide.value("computed", buffer=PAPER), "the paper's division"
        ),
        "tailwind/rpc_fraction_vs_buffer": falls,
    },
)
