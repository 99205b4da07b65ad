"""Space of the appended checksums, and what their cleaning costs (section 5.1).

The paper counts 4 B of an object: the CRC alone. With its own header a checksum entry has 12 B. The
log cleaner removes old ones with the rest. Updates fill a small log of one primary several
times, whose live objects take 50 to 90 % of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.tailwind import _misses, _store
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma._native import native
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS = 60_000  # of one primary
ENTRY = 172  # bytes of an object in a log, its checksum included
CRC = 4


def measure(point: Point) -> Any:
    """Overwrite objects in logs of which live ones take a share."""
    core: Any = native()
    live = KEYS * ENTRY
    result = _store.run(
        point,
        16,
        1.0,
        point["series"],
        keys=KEYS,
        primaries=1,
        segment_bytes=128 << 10,
        log_bytes=round(live / point["used"]),
        preload="replicated",
        buffers=1024,  # the disks of many small segments would be the limit
        seconds=0.15,
    )
    return {
        **_store.measured(result, 1.0),
        "header": (float(core.tailwind.header_bytes), "B"),
        "checksum": (float(core.tailwind.checksum_bytes), "B"),
        "crc": (float(CRC), "B"),
    }


def cleaning_free(data: Data, claim: Claim) -> Decision:
    """Decide whether Tailwind keeps as much of its throughput where cleaning is hard."""
    kept = {}
    for system in _store.SYSTEMS:
        found = data.series("throughput", "used", series=system)
        kept[system] = float(found.iloc[-1] / found.iloc[0])
    text = ", ".join(f"{_store.NAMES[s]} keeps {share:.0%}" for s, share in kept.items())
    return Decision(kept["tailwind"] >= kept["ramcloud"] * (1 - claim.tolerance), text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - no numbers of it
    """Draw the throughput over the memory in use."""
    fig, ax = figures.new()
    for number, system in enumerate(_store.SYSTEMS):
        found = data.series("throughput", "used", "KOp/s", series=system)
        places = [100 * used for used in found.index]
        ax.plot(places, list(found), label=_store.NAMES[system], **figures.style_of(number))
    ax.set(xlabel="Memory of the log with live objects (%)", ylabel="Throughput (KOp/s)")
    _axes.from_zero(ax)
    ax.legend()
    return fig


experiment = Experiment(
    id="tailwind/sec5_1_metadata",
    title="Space of checksums, and the cost of cleaning them",
    profile="r320",
    axes={
        "series": Axis(_store.SYSTEMS),
        "used": Axis([0.5, 0.7, 0.8, 0.9], full=[0.5, 0.6, 0.7, 0.8, 0.9]),
    },
    measure=measure,
    figure=figure,
    fabrics=_store.FABRICS,
    why_not=_store.WHY_NOT,
    decides={
        "tailwind/metadata_bytes_tailwind": decide.by_construction(
            decide.value("crc", series="tailwind", used=0.5), "the paper counts the CRC alone"
        ),
        "tailwind/metadata_bytes_ramcloud_header": decide.by_construction(
            decide.value("header", series="ramcloud", used=0.5), "our header has the paper's length"
        ),
        "tailwind/metadata_cleaning_free": cleaning_free,
    },
    misses=_misses.of("metadata"),
)
