"""Judges a number by a claim: its value and tolerance, its range, or its bound."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from . import registry
from .data import Data, NotEvaluated
from .decide import Decision, ProfileValue

if TYPE_CHECKING:
    import pandas as pd

    from .claims import Claim
    from .experiment import Experiment

__all__ = ["DECIDER_FAILED", "TOLERANCES", "bound_in", "by_seed", "decided", "error_of", "judge"]

DECIDER_FAILED = "the decider failed"
"""First words of the reason when the decider of a claim has a bug."""

UNDECIDED = "not evaluated"

TOLERANCES = {
    "exact": 0.10,
    "within-20": 0.20,
    "approx": 0.25,
    "average-over-sweep": 0.25,
    "peak-only": 0.15,
}
"""Largest distance of a measured number from the paper's, as a fraction, by the claim's hint."""

_BOUND = re.compile(
    r"(?:^|[,;] )(?:written as |[\w ]+ is )?(?:so |only )?(?:an? )?"
    r"(?:(upper bound|at most|less than|fewer than|up to|under|(?:stays )?below)"
    r"|(?:lower bound|at least|more than|above|minimum))\b"
)
"""A clause of a claim's note that states a bound; the group is there for an upper bound."""

_COUNTED = ("count", "rounds")
"""Units of which there may be none below an upper bound; a time, a rate or a loss is positive."""


def bound_in(note: str) -> Literal["upper", "lower"] | None:
    """Return the bound that a clause of a claim's note states."""
    found = _BOUND.search(note)
    if not found:
        return None
    return "upper" if found[1] else "lower"


def decided(claim: Claim, experiment: Experiment, data: Data | None) -> Decision | float | bool:
    """Return the outcome of the decider of a claim; a `ProfileValue` needs no data."""
    decider = experiment.decides[claim.id]
    if isinstance(decider, ProfileValue):
        name = decider.name or experiment.profile
        return Decision(None, decider.read(experiment.profile, claim), f"profile {name}")
    if data is None:
        raise NotEvaluated("nothing was measured")
    try:
        return decider(data, claim)
    except (NotEvaluated, KeyboardInterrupt):
        raise
    except Exception as error:
        text = registry.located(error, registry.source(experiment.id))
        raise NotEvaluated(f"{DECIDER_FAILED}: {text}") from error


def by_seed(
    claim: Claim, experiment: Experiment, tables: Mapping[int, pd.DataFrame]
) -> dict[int, str]:
    """Return the verdicts of each seed's data alone; `UNDECIDED` where they decide nothing."""
    found = {}
    for seed, table in tables.items():
        try:
            found[seed] = judge(claim, decided(claim, experiment, Data(table)))[0]
        except NotEvaluated:
            found[seed] = UNDECIDED
    return found


def judge(claim: Claim, outcome: Decision | float | bool) -> tuple[str, float | str | None, str]:
    """Return verdict, measured value and reason of a decider's outcome."""
    if isinstance(outcome, bool):
        decision = Decision(outcome)
    elif isinstance(outcome, Decision):
        decision = outcome
    else:
        decision = Decision(None, float(outcome))
    holds, reason = decision.holds, decision.reason
    if holds is None:
        if not isinstance(decision.measured, (int, float)):
            raise NotEvaluated("the decider returned neither a number nor an answer")
        if not math.isfinite(decision.measured):
            raise NotEvaluated(f"the measured value is not a finite number: {decision.measured}")
        holds, rule = _within(claim, float(decision.measured))
        reason = f"{rule}; {reason}" if reason else rule
    return ("held" if holds else "missed"), decision.measured, reason


def _within(claim: Claim, measured: float) -> tuple[bool, str]:
    """Compare a number with the claim's value, range or bound."""
    if isinstance(claim.value, str):
        raise NotEvaluated("a number cannot decide a claim whose value is text")
    share = claim.tolerance
    if claim.bound:
        return _within_bound(claim, measured)
    if isinstance(claim.value, list):
        low, high = min(claim.value), max(claim.value)
        slack = share * max(abs(low), abs(high))
        holds = low - share * abs(low) <= measured <= high + share * abs(high)
        return holds, f"range {low:g} to {high:g}, within {slack:.3g}"
    expected = float(claim.value)
    if expected == 0:
        return abs(measured) <= share, f"zero, within {share:g} {claim.unit}"
    error = measured / expected - 1
    if abs(error) < 5e-4:
        return True, "equals the paper's value"
    side = "above" if error > 0 else "below"
    return abs(error) <= share, f"{abs(error):.1%} {side} the paper's value, {share:.0%} allowed"


def _within_bound(claim: Claim, measured: float) -> tuple[bool, str]:
    ends = claim.value if isinstance(claim.value, list) else [claim.value]
    if claim.bound == "lower":
        return measured >= min(ends), "lower bound"
    if measured <= 0 and claim.unit not in _COUNTED:
        return False, "upper bound of a positive number"
    return measured <= max(ends), "upper bound"


def error_of(claim: Claim, measured: object) -> float | None:
    """Return the distance of a number from the paper's; None where the paper has none."""
    if claim.bound or not claim.number or isinstance(measured, (bool, str, type(None))):
        return None
    number = float(str(measured))
    ends = claim.value if isinstance(claim.value, list) else [claim.value]
    nearest_end = min(max(number, min(ends)), max(ends))
    return abs(number / nearest_end - 1) if nearest_end else None
