"""A folder of results on one screen: predictions, figures, verdicts, misses, next commands."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pyrdma import claims, registry
from pyrdma.claims import Verdict

from .predictions import predictions

__all__ = ["by_paper", "lines"]

_WIDTH = 98
_MOST_NAMED = 12  # missed claims; more of them are counted only
_COLUMNS = {name: name for name in claims.VERDICTS} | {claims.NOT_ROBUST: "not robust"}
_NEXT = (
    ("pyrdma claims --missed", "the missed claims; --show ID has the reason of one"),
    ("pyrdma run fabric/rate --full", "every point of a figure, at its full duration"),
    ("pyrdma list", "the experiments; the README shows how to write one"),
    ("pyrdma doctor", "parts that this machine lacks: an RDMA device, peers for comparison"),
)


def lines(out: str | Path = "results", fabric: str = "sim") -> Iterator[str]:
    """Yield the lines of a results folder's summary; results of `fabric` decide the claims."""
    out = Path(out)
    verdicts = claims.evaluate(out, fabric=fabric)
    yield from predictions(verdicts)
    yield ""
    yield from _figures(out)
    yield ""
    yield from by_paper(verdicts, fabric)
    yield from _misses(verdicts)
    yield ""
    yield "Next"
    width = max(len(command) for command, _ in _NEXT)
    for command, what in _NEXT:
        yield f"  {command:{width}}  {what}"


def _figures(out: Path) -> Iterator[str]:
    """Count the figures by paper and fabric, and say where they are."""
    drawn: Counter[tuple[str, str]] = Counter()
    for name in registry.ids():
        end = Path(name).name
        paths = [p for n in (end, f"{end}-host=*") for p in (out / name).glob(f"*/{n}.png")]
        paper = name.partition("/")[0]
        drawn.update((paper, fabric) for fabric in {path.parent.name for path in paths})
    yield f"Figures: {drawn.total()}, as PNG and PDF. They are PAPER/NAME/FABRIC/NAME.png in"
    yield f"  {out}"
    by_fabric: dict[str, list[str]] = {}
    for (paper, fabric), count in sorted(drawn.items()):
        by_fabric.setdefault(fabric, []).append(f"{paper} {count}")
    for fabric, counts in sorted(by_fabric.items()):
        yield from _listed(f"{fabric:8}", ", ".join(counts).split())


def by_paper(verdicts: Sequence[Verdict], fabric: str) -> Iterator[str]:
    """Count the claims that an experiment decides, by paper and role; each datum once."""
    decidable = [v for v in claims.counted(verdicts) if v.decidable]
    rows = Counter((v.paper, v.role, v.verdict) for v in decidable)
    left = Counter(v.paper for v in verdicts if not v.decidable)
    title = f"Claims, by what {fabric} measured"
    columns = "".join(f"{name:>{len(name) + 2}}" for name in _COLUMNS.values())
    yield f"{title:29}{columns}"
    for paper in claims.papers():
        for role in sorted({role for p, role, _ in rows if p == paper}):
            cells = "".join(
                f"{rows[paper, role, verdict]:{len(name) + 2}}"
                for verdict, name in _COLUMNS.items()
            )
            yield f"  {paper:9} {role:16}{cells}"
    counts = ", ".join(f"{count} of {paper}" for paper, count in sorted(left.items()))
    if left:
        yield from _listed(f"{sum(left.values())} more wait for their experiments:", counts.split())


def _misses(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Name the missed claims if they are few, and in any case those that show a wrong profile."""
    if wrong := [v.claim for v in verdicts if v.is_wrong_profile]:
        yield from _listed("missed calibration; correct the profile:", wrong)
    missed = [v.claim for v in verdicts if v.verdict == "missed" and not v.is_wrong_profile]
    if 0 < len(missed) <= _MOST_NAMED:
        yield from _listed("missed:", sorted(missed))


def _listed(label: str, words: Iterable[str]) -> Iterator[str]:
    """Yield lines of a label and words, folded with a hanging indent; no word is broken."""
    yield from textwrap.wrap(
        f"{label} {' '.join(words)}",
        _WIDTH,
        initial_indent="  ",
        subsequent_indent=" " * 11,
        break_long_words=False,
        break_on_hyphens=False,
    )
