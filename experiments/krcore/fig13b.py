"""Slowdown of a WRITE against its payload (section 5.2)."""

from __future__ import annotations

from typing import Any

from experiments.krcore import _misses, _slowdown
from pyrdma import Axis, Experiment
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision


def negligible(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Return the payload from which on the slowdown is negligible, as the paper has it of READs."""
    found = _slowdown.slowdown(data, "write", "KRCore(DC)")
    small = [int(size) for size in found.index if (found.loc[size:] < _slowdown.NEGLIGIBLE).all()]
    text = ", ".join(f"{int(size)} B: {value:.0f} %" for size, value in found.items())
    if not small:
        return Decision(False, f"{found.iloc[-1]:.0f} % at {int(found.index[-1])} B", text)
    return Decision(None, float(small[0]), text)


DECIDES: dict[str, Any] = {"krcore/f13b_write_large": negligible}

experiment = Experiment(
    id="krcore/fig13b",
    title="Slowdown of WRITEs against their payload",
    profile="krcore",
    axes={
        "op": Axis(["write"]),
        "series": Axis(["verbs", *_slowdown.KRCORE]),
        "size": _slowdown.SIZES,
    },
    measure=_slowdown.measure,
    figure=_slowdown.figure("write", "f13b_write_large"),
    fabrics=("sim", "verbs"),
    why_not=_slowdown.WHY_NOT,
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
