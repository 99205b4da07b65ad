"""The predictions of public micro-benchmarks, and the reasons of their misses."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from experiments.nic import _sweep
from pyrdma import claims, figures, registry
from pyrdma.claims import Verdict
from pyrdma.commands.sweeps import reasons_of_misses, sweeps, unexplained
from pyrdma.runs import Options, execute

LEAST = 0.8
"""Share of the predicted points that must be within their tolerance."""

CLAIMS = [claim for claim in claims.load().values() if claim.paper == "nic"]


def verdict(claim: str, role: str, held: bool, measured: float = 2.0) -> Verdict:
    return Verdict(
        claim=f"nic/{claim}",
        paper="nic",
        experiment="nic/one",
        kind="absolute",
        role=role,
        verdict="held" if held else "missed",
        expected=1.6,
        measured=measured,
        unit="us",
        reason="",
        error=abs(measured / 1.6 - 1),
    )


VERDICTS = [
    verdict("a", "calibration", held=False),
    verdict("b", "validation", held=True, measured=1.6),
    verdict("c", "validation", held=False),
    verdict("d", "validation", held=False),
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    # A whole run keeps the points for the other tests of experiments (tests/run.sh).
    out = Path(os.environ.get("PYRDMA_TEST_RESULTS") or tmp_path_factory.mktemp("nic"))
    for name in registry.ids():
        if name.startswith("nic/"):
            report = execute(name, Options(out=out))
            assert not report.outcome.failed
            assert report.figures, f"{name}: {report.figure_skipped or report.figure_failed}"
    return claims.evaluate(out, "nic")


@pytest.mark.slow
def test_four_of_five_predictions_are_within_a_fifth(judged: list[Verdict]) -> None:
    count = Counter(v.verdict for v in judged if v.role == "validation")
    assert count["held"] + count[claims.NOT_ROBUST] >= LEAST * count.total()


@pytest.mark.slow
def test_every_miss_has_a_reason_and_every_reason_a_miss(judged: list[Verdict]) -> None:
    assert unexplained(judged, reasons_of_misses(judged)) == (set(), set())


@pytest.mark.slow
def test_every_claim_is_judged(judged: list[Verdict]) -> None:
    assert {v.claim for v in judged} == {claim.id for claim in CLAIMS}
    assert {v.verdict for v in judged} <= {"held", claims.NOT_ROBUST, "missed"}


def test_medians_of_published_data_have_bars() -> None:
    medians = [claim for claim in CLAIMS if "median of" in claim.note]
    _, ax = figures.new()
    for claim in medians:
        _sweep._point(ax, 2, claim, figures.style_of(0))
    for claim, bars in zip(medians, ax.collections, strict=True):
        (_, low), (_, high) = bars.get_segments()[0]
        assert f"{low:.4g} to {high:.4g}" in claim.note
        assert low <= float(claim.number or 0) <= high
    assert medians


def test_half_of_the_experiments_with_sweeps_are_predicted() -> None:
    """Expect every sweep to have points that calibrate and points that are predicted."""
    roles: dict[str, set[str]] = {}
    for claim in CLAIMS:
        if "no sweep" not in claim.note:
            roles.setdefault(claim.experiment, set()).add(claim.role)
    without_prediction = {name for name, found in roles.items() if "validation" not in found}
    # The signalling intervals of UC WRITE all calibrate.
    assert without_prediction == {"nic/unsignaled"}
    assert all("calibration" in found for found in roles.values())
    assert {claim.tolerance for claim in CLAIMS} == {0.2}


def test_the_table_counts_fitted_and_predicted_points_apart() -> None:
    lines = list(sweeps(VERDICTS, {"nic/c": "too hot"}))
    assert lines[1].split() == ["nic/one", "1", "25%", "3", "1", "33%"]
    assert lines[2].split() == ["all", "1", "25%", "3", "1", "33%"]
    assert [line.split() for line in lines[3:]] == [
        ["2", "missed:", "no", "reason", "is", "stated"],
        ["a", "d"],
        ["1", "missed:", "too", "hot"],
        ["c"],
    ]


def test_a_miss_without_a_reason_and_a_reason_without_a_miss_are_found() -> None:
    reasons = {"nic/a": "x", "nic/b": "x", "nic/c": "x"}
    assert unexplained(VERDICTS, reasons) == ({"nic/d"}, {"nic/b"})


def test_a_pattern_gives_its_reason_to_all_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sweep, "_stated_misses", lambda: [("cx6_*_t1", "one"), ("cib", "two")])
    found = _sweep.reasons(["nic/cx6_read_t1", "nic/cx6_read_t12", "nic/cib", "nic/cib_x"])
    assert found == {"nic/cx6_read_t1": "one", "nic/cib": "two"}
