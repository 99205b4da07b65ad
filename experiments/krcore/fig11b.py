"""Asynchronous echo of 8 B: throughput of 1 to 240 clients (section 5.2)."""

from __future__ import annotations

from experiments.krcore import _echo
from pyrdma import decide
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

MANY = 240


def rates(data: Data) -> tuple[float, float, float]:
    """Return the rates of verbs, KRCore(RC) and KRCore(DC) with all clients."""
    verbs, rc, dc = (data.value("rate", "M req/s", series=s, clients=MANY) for s in _echo.SERIES)
    return verbs, rc, dc


def loss(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the mean loss of both transports."""
    verbs, rc, dc = rates(data)
    return Decision(
        None, 100 * (1 - (rc + dc) / 2 / verbs), f"{rc:.1f} and {dc:.1f} of {verbs:.1f}"
    )


def alike(data: Data, claim: Claim) -> Decision:
    """Decide whether both transports have one rate, within the tolerance, below that of verbs."""
    verbs, rc, dc = rates(data)
    holds = abs(rc / dc - 1) <= claim.tolerance and max(rc, dc) < verbs
    return Decision(holds, f"{rc:.1f}, {dc:.1f}, {verbs:.1f} M/s")


experiment = _echo.experiment(
    "fig11b",
    f"Echo of 8 B, batches of {_echo.BATCH}",
    _echo.BATCH,
    {
        "krcore/f11b_verbs_peak": decide.value("rate", series="verbs", clients=MANY),
        "krcore/f11b_rc_peak": decide.value("rate", series="KRCore(RC)", clients=MANY),
        "krcore/f11b_dc_peak": decide.value("rate", series="KRCore(DC)", clients=MANY),
        "krcore/f11b_loss": loss,
        "krcore/f11b_rc_eq_dc": alike,
    },
)
