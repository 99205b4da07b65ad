"""Share of the baseline's predicate thread that posts RDMA writes (sections 3.2 and 3.4).

The paper states neither nodes nor sizes. Here all members send 10 KB, and 16 of them, as in the
counters of section 4.1.1, decide. The shares are those of node 0: of its runtime, and of the
predicates with their triggers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _multicast
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = 16
SHARES = {
    "post_share_of_thread": "of the thread",
    "post_share_of_predicates": "of predicates and triggers",
}


def measure(point: Point) -> Any:
    """Measure one number of nodes."""
    result = _multicast.run(point, point["nodes"], preset=point["series"], timed=True)
    return {share: (result.value(share), "%") for share in SHARES}


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw both shares over the nodes, with the paper's bound and range."""
    fig, ax = figures.new()
    lines = [(series, share) for series in ("baseline", "batching") for share in SHARES]
    for number, (series, share) in enumerate(lines):
        name = f"{series}: {SHARES[share]}"
        figures.line(ax, data, share, "nodes", unit="%", label=name, first=number, series=series)
    low = claims["spindle/base_post_share_predicate_thread"].value[0]
    between = claims["spindle/post_share_within_predicate"].value
    line = {"color": "black", "linestyle": "--", "linewidth": 0.9}
    ax.axhline(low, label="paper: least, of the thread", **line)
    ax.axhspan(
        *between, color="#777777", alpha=0.2, lw=0, label="paper: of predicates and triggers"
    )
    _multicast.finish(ax, data, "Time of posts (%)")
    ax.set_ylim(0, 102)
    figures.legend_below([ax])
    return fig


experiment = Experiment(
    id="spindle/sec3_2_posting_share",
    title="Share of predicate-thread time spent posting RDMA writes",
    profile="spindle",
    axes={"series": Axis(["baseline", "batching"]), "nodes": _multicast.NODES},
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/base_post_share_predicate_thread": decide.value(
            "post_share_of_thread", series="baseline", nodes=NODES
        ),
        "spindle/post_share_within_predicate": decide.value(
            "post_share_of_predicates", series="baseline", nodes=NODES
        ),
    },
    misses={
        "spindle/post_share_within_predicate": "all but the posts is short in our code. Of a "
        "million messages per sender posts take 52 s of 66 (spindle/sec4_1_1_counters), 14 "
        "remain. The paper's posts take 65 s of about 330 (8.03 by 16 GB/s), 260 remain",
    },
)
