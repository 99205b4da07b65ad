"""Synchronous echo of 8 B: throughput and latency of 1 to 240 clients (section 5.2)."""

from __future__ import annotations

from experiments.krcore import _echo, _one_sided
from pyrdma import decide
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision


def gap(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether KRCore adds more to an echo than to a READ, at one client."""
    echo, read = (
        data.value(metric, "us", series="KRCore(RC)", clients=1)
        - data.value(metric, "us", series="verbs", clients=1)
        for metric in ("latency", "read_latency")
    )
    return Decision(echo > read, f"echo {echo:.2f} us, READ {read:.2f} us")


experiment = _echo.experiment(
    "fig11a",
    "Echo of 8 B, one at a time",
    1,
    {
        "krcore/f11a_verbs_1": decide.value("latency", series="verbs", clients=1),
        "krcore/f11a_rc_1": decide.value("latency", series="KRCore(RC)", clients=1),
        "krcore/f11a_rc_overhead": _one_sided.excess("KRCore(RC)"),
        "krcore/f11a_dc_overhead": _one_sided.excess("KRCore(DC)"),
        "krcore/f11a_gap_vs_onesided": gap,
    },
    also_reads=True,
)
