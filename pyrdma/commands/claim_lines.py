"""Claims and their verdicts, one line each, or everything of one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from pyrdma import claims
from pyrdma.claims import Verdict

from . import terminal

__all__ = ["counts", "described", "lines"]

_HEAD = ("claim", "verdict", "seeds", "published", "measured")
_LEAST = 12  # width of the last columns in a narrow terminal
_NO_UNIT = ("none", "qualitative")


def lines(verdicts: Sequence[Verdict], indent: str = "") -> Iterator[str]:
    """Yield a head and a line per claim: its id, verdict, published and measured value.

    Between them stands how many of the seeds alone give the verdict, as ``2/3``.

    A line is as wide as the terminal, if that is not narrow. It shortens texts, but no id and no
    verdict.
    """
    rows = [
        (
            v.claim,
            f"{v.verdict}, robust" if v.robust else v.verdict,
            _seeds(v),
            _published(v),
            _measured(v),
        )
        for v in verdicts
    ]
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    room = max(terminal.width() - len(indent) - sum(widths[:3]) - 8, 2 * _LEAST)
    widths[3] = min(widths[3], max(room // 2, room - widths[4]))
    widths[4] = room - widths[3]
    for row in (_HEAD, *rows):
        cells = zip(row, widths, strict=True)
        yield indent + "  ".join(f"{terminal.shortened(text, n):{n}}" for text, n in cells).rstrip()


def counts(verdicts: Sequence[Verdict]) -> str:
    """Return the number of claims of each verdict that there is, misses first."""
    found = {name: len(claims.select(verdicts, name)) for name in claims.VERDICTS}
    return ", ".join(f"{count} {name}" for name, count in found.items() if count)


def described(verdict: Verdict) -> Iterator[str]:
    """Yield everything that is known of one claim, and its verdict with the reason."""
    claim = claims.load()[verdict.claim]
    decider = claims.deciders().get(claim.id)
    rule = {"upper": "at most this", "lower": "at least this"}.get(claim.bound or "")
    if rule is None and claim.number is not None:
        rule = f"within {claim.tolerance:.0%} ({claim.tolerance_hint})"
    rows = {
        "verdict": verdict.verdict,
        "published": _published(verdict),
        "measured": _measured(verdict),
        "error": "" if verdict.error is None else f"{verdict.error:.1%}",
        "reason": verdict.reason,
        "held if": rule or "the experiment's code finds that it holds",
        "seeds": f"{_seeds(verdict)} give this verdict alone" if verdict.seeds else "",
        "robust": {True: "yes", False: "no", None: ""}[verdict.robust],
        "changed by": ", ".join(verdict.changed_by),
        "same data as": verdict.same_as,
        "kind": claim.kind,
        "role": claim.role,
        "paper": f"{claim.paper}, {claim.where}",
        "figure": claim.experiment,
        "series": claim.series,
        "parameters": ", ".join(f"{name}={value}" for name, value in claim.params.items()),
        "metric": claim.metric,
        "note": claim.note,
        "decided by": decider.id if decider else "no experiment",
    }
    yield claim.id
    for name, text in rows.items():
        if text:
            yield from textwrap.wrap(
                f"{name:13} {text}",
                terminal.width() - 2,
                initial_indent="  ",
                subsequent_indent=" " * 16,
                break_on_hyphens=False,
            )


def _seeds(verdict: Verdict) -> str:
    return f"{verdict.seeds - len(verdict.seeds_apart)}/{verdict.seeds}" if verdict.seeds else ""


def _published(verdict: Verdict) -> str:
    claim = claims.load().get(verdict.claim)
    if claim is not None and claim.number is not None:
        return _with_unit(terminal.published(claim), claim.unit)
    return _with_unit(terminal.cell(verdict.expected), "")


def _measured(verdict: Verdict) -> str:
    unit = verdict.unit if isinstance(verdict.measured, (int, float)) else ""
    return _with_unit(terminal.cell(verdict.measured), unit)


def _with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}" if unit and unit not in _NO_UNIT else text
