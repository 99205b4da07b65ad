"""The sweeps among verdicts: how well fitted points fit, and how many predicted ones hold."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from pyrdma import registry
from pyrdma.claims import NOT_ROBUST, Verdict

__all__ = ["reasons_of_misses", "sweeps", "unexplained"]

_HELD = ("held", NOT_ROBUST)


def sweeps(verdicts: Sequence[Verdict], reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield a line per experiment and one for all, then the misses by their reasons.

    A calibration claim is a fitted point, a validation claim a predicted one. `reasons` are those
    of misses, by claim.
    """
    judged = [v for v in verdicts if v.verdict in (*_HELD, "missed")]
    names = sorted({v.experiment for v in judged})
    width = max([len(name) for name in names], default=3)
    yield f"{'':{width}}  {'fitted':>7} {'median error':>13} {'predicted':>10} {'held':>5}"
    for name in [*names, "all"]:
        of_name = [v for v in judged if name in (v.experiment, "all")]
        fitted = [v for v in of_name if v.role == "calibration"]
        errors = [v.error for v in fitted if v.error is not None]
        predicted = [v for v in of_name if v.role == "validation"]
        held = sum(v.verdict in _HELD for v in predicted)
        median = f"{statistics.median(errors):.0%}" if errors else "-"
        share = f" {held / len(predicted):5.0%}" if predicted else ""
        yield f"{name:{width}}  {len(errors):7} {median:>13} {len(predicted):10} {held:5}{share}"
    by_reason: dict[str, list[str]] = {}
    for verdict in judged:
        if verdict.verdict == "missed":
            why = reasons.get(verdict.claim, "")
            by_reason.setdefault(why, []).append(verdict.claim.partition("/")[2])
    for why, missed in sorted(by_reason.items()):
        yield f"{len(missed)} missed: {why or 'no reason is stated'}"
        yield from textwrap.wrap(
            " ".join(missed),
            98,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )


def reasons_of_misses(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Return the reasons that the experiments state for misses (`Experiment.misses`), by claim."""
    names = {v.experiment for v in verdicts} & set(registry.ids()) - registry.broken().keys()
    return {
        claim: why for name in sorted(names) for claim, why in registry.load(name).misses.items()
    }


def unexplained(
    verdicts: Sequence[Verdict], reasons: Mapping[str, str]
) -> tuple[set[str], set[str]]:
    """Return the missed claims that have no reason, and the held claims that have one."""
    missed = {v.claim for v in verdicts if v.verdict == "missed"}
    held = {v.claim for v in verdicts if v.verdict in _HELD}
    return missed - reasons.keys(), held & reasons.keys()
