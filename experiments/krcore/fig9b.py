"""Echo of one client over the size of the message, copied or read by the receiver (figure 9b).

``KRCore`` has buffers for the whole message, which it copies at both ends. ``KRCore+opt`` announces
a message of 16 KiB and more, and the receiver reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments.krcore import _misses
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SERIES = ("verbs", "KRCore", "KRCore+opt")
LIMIT = 16 << 10
NEGLIGIBLE = 0.1
"""The most that copying may add to an echo, as a fraction of the echo of verbs."""


def measure(point: Point) -> Any:
    """Measure one size."""
    series, size = str(point["series"]), int(point["size"])
    load = workload.KrcoreEcho(
        system="verbs" if series == "verbs" else "krcore",
        size=size,
        server_threads=1,
        message_bytes=LIMIT if series == "KRCore+opt" else max(LIMIT, size),
        zero_copy_above=LIMIT - 1 if series == "KRCore+opt" else max(LIMIT, size),
        arena_bytes=64 << 20,
    )
    seconds = 200e-6 + size * 5e-9
    with point.cluster(nodes=2) as cluster:
        result = cluster.run(load, duration_s=point.duration(seconds, 5 * seconds))
    return {"echo_latency": (result.latency("echo").mean, "ns")}


def echoes(data: Data) -> dict[str, pd.Series]:
    """Return the echo of each system over the sizes, in microseconds."""
    return {s: data.series("echo_latency", "size", "us", series=s) for s in SERIES}


def negligible(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Return the largest size up to which copying adds little.

    What KRCore takes longer than verbs with the smallest message is no copying.
    """
    found = echoes(data)
    extra = found["KRCore"] - found["verbs"]
    shares = (extra - extra.iloc[0]) / found["verbs"]
    little = [int(size) for size in shares.index if (shares.loc[:size] <= NEGLIGIBLE).all()]
    text = ", ".join(f"{int(n)} B: {share:.0%}" for n, share in shares.items())
    return Decision(None, float(little[-1]), f"copying adds, of the echo of verbs, at {text}")


def mean(series: str, least: int, excess: bool) -> Any:
    """Compare the mean ratio to verbs (or its excess over 1) from a size on."""

    def decider(data: Data, claim: Claim) -> Decision:
        found = echoes(data)
        ratios = (found[series] / found["verbs"]).loc[least:] - (1 if excess else 0)
        text = f"{ratios.min():.2f} to {ratios.max():.2f} {claim.unit}"
        return Decision(None, float(ratios.mean()), text)

    return decider


def order(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide the rank above 16 KiB: verbs, then KRCore+opt, then KRCore."""
    verbs, copied, read = (v.loc[LIMIT + 1 :] for v in echoes(data).values())
    last = verbs.index[-1]
    text = f"{verbs[last]:.0f}, {read[last]:.0f}, {copied[last]:.0f} us at {int(last)} B"
    return Decision(bool((verbs < read).all() and (read < copied).all()), text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw echoes, and their ratios to verbs, over the size."""
    fig, (left, right) = figures.new(1, 2)
    found = echoes(data)
    for number, (series, values) in enumerate(found.items()):
        style = figures.style_of(number)
        left.plot(list(values.index), list(values), label=series, **style)
        if series != "verbs":
            ratios = values / found["verbs"]
            right.plot(list(ratios.index), list(ratios), label=series, **style)
    last = found["verbs"].index[-1]
    for claim, base, place in (("f9b_copy_ratio", 0, 0.75), ("f9b_opt_excess", 1, 0.5)):
        paper = claims[f"krcore/{claim}"]
        low, high = (base + float(end) for end in paper.value)
        name = f"paper: {paper.series}, range"
        right.errorbar(
            [last * place],
            [(low + high) / 2],
            yerr=(high - low) / 2,
            fmt="o" if base == 0 else "s",
            color="black",
            markerfacecolor="none",
            capsize=4,
            label=name,
            zorder=5,
        )
    for ax in (left, right):
        ax.axvline(LIMIT, color="0.5", linewidth=1, linestyle=":", label="16 KiB")
        ax.set_xscale("log", base=2)
        ax.set_xlabel("Message (B)")
    _axes.logarithmic(left)
    left.set_ylabel("Mean echo (µs)")
    right.set_ylabel("Echo, ratio to verbs")
    _axes.from_zero(right)
    left.legend()
    right.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/copy_small_limit": negligible,
    "krcore/f9b_small_negligible": negligible,
    "krcore/f9b_copy_ratio": mean("KRCore", LIMIT + 1, excess=False),
    "krcore/f9b_opt_excess": mean("KRCore+opt", LIMIT, excess=True),
    "krcore/f9b_rank": order,
}

experiment = Experiment(
    id="krcore/fig9b",
    title="Zero-copy protocol for two-sided messages",
    profile="krcore",
    axes={
        "series": Axis(SERIES),
        "size": Axis(
            [64, 1 << 10, 4 << 10, LIMIT, 64 << 10, 256 << 10, 1 << 20],
            full=[1 << n for n in range(6, 21)],
            unit="B",
        ),
    },
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "over shared memory verbs copies, too"},
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
