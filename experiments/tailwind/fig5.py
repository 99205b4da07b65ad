"""What a scan finds of a write that was cut (figure 5).

A buffer has the object A with its checksum. Then so many bytes of the write of B and its checksum
arrive, from none to all. The scan (algorithm 1) must find B only if all of it is there. The native
tests do the same with each word left out and each bit flipped, and for batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from pyrdma import Axis, Experiment, Point, figures
from pyrdma._native import native
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADER = 30
CHECKSUM = 12
VALUE = b"x" * 100
CASES = (
    "complete",
    "partial checksum",
    "partial object",
    "partial header",
)


def bytes_of(case: str, write: int) -> range:
    """Return the lengths of B's write that belong to a case."""
    return {
        "complete": range(write, write + 1),
        "partial checksum": range(write - CHECKSUM, write),
        "partial object": range(HEADER, write - CHECKSUM),
        "partial header": range(HEADER),
    }[case]


def measure(point: Point) -> Any:
    """Cut the write at each byte of the case."""
    core: Any = native()
    first = core.tailwind.replica([(b"A", VALUE)])
    both = core.tailwind.replica([(b"A", VALUE), (b"B", VALUE)])
    write = len(both) - len(first)
    found = set()
    lengths = bytes_of(point["case"], write)
    for length in lengths:
        buffer = both[: len(first) + length] + bytes(write - length + 64)
        found.add(core.tailwind.scan(buffer)[1])
    lost = 0 if min(found) >= 1 else 1
    return {
        "least": (float(min(found)), "objects"),
        "most": (float(max(found)), "objects"),
        "lost": (float(lost), "count"),
        "cuts": (float(len(lengths)), "count"),
    }


def recovered(case: str) -> Any:
    """Return the objects that the scan finds, if it is the same for each cut."""

    def decider(data: Data, claim: Claim) -> Decision:
        least, most = (data.value(m, claim.unit, case=case) for m in ("least", "most"))
        if least != most:
            return Decision(False, f"{least:.0f} to {most:.0f} objects")
        return Decision(None, least, f"{data.value('cuts', case=case):.0f} cuts")

    return decider


def acknowledged(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Count the cuts at which A, which was acknowledged, is not found."""
    return Decision(None, sum(data.value("lost", case=case) for case in CASES))


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the objects that the scan finds in each case."""
    fig, ax = figures.new()
    values = [data.value("most", "objects", case=case) for case in CASES]
    ax.barh(list(CASES), values, color="0.6", edgecolor="black")
    for place, case in enumerate(CASES):
        count = data.value("cuts", case=case)
        cuts = f"{count:.0f} cut{'' if count == 1 else 's'}"
        ax.text(values[place] + 0.12, place, cuts, va="center")
        paper = claims[f"tailwind/fig5_{case.replace(' ', '_')}"].number
        if paper is not None:
            _axes.hollow(ax, paper, place, "_nolegend_" if place else "paper")
    ax.set(xlabel="Objects that the scan finds", xlim=(0, 2.6), xticks=[0, 1, 2])
    ax.invert_yaxis()
    ax.legend()
    return fig


experiment = Experiment(
    id="tailwind/fig5",
    title="Torn writes at a backup's buffer",
    profile="r320",
    axes={"case": Axis(list(CASES))},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={"shm": "a buffer is a buffer", "verbs": "a buffer is a buffer"},
    decides={
        "tailwind/fig5_complete": recovered("complete"),
        "tailwind/fig5_partial_checksum": recovered("partial checksum"),
        "tailwind/fig5_partial_object": recovered("partial object"),
        "tailwind/fig5_partial_header": recovered("partial header"),
        "tailwind/fig5_acked_never_lost": acknowledged,
    },
)
