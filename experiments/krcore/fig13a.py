"""Slowdown of a READ against its payload (section 5.2); the trend also takes WRITEs."""

from __future__ import annotations

from typing import Any

from experiments.krcore import _misses, _slowdown
from pyrdma import Axis, Experiment
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

LARGE = 256 << 10
SLACK = 1.0  # percentage points


def large(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the largest slowdown of READs of more than 256 KiB."""
    found = {s: _slowdown.slowdown(data, "read", s).loc[LARGE + 1 :] for s in _slowdown.KRCORE}
    text = ", ".join(f"{s} {v.max():.1f} %" for s, v in found.items())
    return Decision(None, max(float(v.max()) for v in found.values()), text)


def falls(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the slowdown falls with the payload, for both operations and transports."""
    holds, texts = True, []
    for op in ("read", "write"):
        for series in _slowdown.KRCORE:
            found = _slowdown.slowdown(data, op, series)
            holds = holds and bool((found.diff().dropna() <= SLACK).all())
            holds = holds and bool(found.iloc[-1] < found.iloc[0])
            texts.append(f"{op}, {series}: {found.iloc[0]:.0f} to {found.iloc[-1]:.0f} %")
    return Decision(holds, "; ".join(texts))


DECIDES: dict[str, Any] = {"krcore/f13a_read_large": large, "krcore/f13_trend": falls}

experiment = Experiment(
    id="krcore/fig13a",
    title="Slowdown of READs against their payload",
    profile="krcore",
    axes={
        "op": Axis(["read", "write"]),
        "series": Axis(["verbs", *_slowdown.KRCORE]),
        "size": _slowdown.SIZES,
    },
    measure=_slowdown.measure,
    figure=_slowdown.figure("read", "f13a_read_large"),
    fabrics=("sim", "verbs"),
    why_not=_slowdown.WHY_NOT,
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
