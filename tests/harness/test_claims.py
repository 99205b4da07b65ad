"""Verdicts, and the machine-readable output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pyrdma import claims, decide
from pyrdma.claims import Claim, Verdict
from pyrdma.commands import results
from pyrdma.data import Data, NotEvaluated
from pyrdma.errors import InvalidArgument
from tests.errors import raises
from tests.harness.support import pyrdma

FIELDS = [
    "claim",
    "paper",
    "experiment",
    "kind",
    "role",
    "verdict",
    "expected",
    "measured",
    "unit",
    "reason",
    "error",
    "seeds",
    "seeds_apart",
    "same_as",
    "robust",
    "changed_by",
    "miss_has_reason",
]


def claim(value: Any, unit: str = "us", hint: str = "exact", note: str = "") -> Claim:
    return Claim(
        id="p/c",
        paper="p",
        experiment="p/e",
        kind="absolute",
        role="validation",
        series="s",
        params={},
        metric="m",
        value=value,
        unit=unit,
        tolerance_hint=hint,
        where="1",
        note=note,
    )


def data() -> Data:
    rows = [
        {"series": series, "n": n, "metric": metric, "value": value, "unit": unit}
        for metric, unit, values in (
            ("rate", "op/s", {"a": (1e6, 2e6, 4e6), "b": (2e6, 2.5e6, 3e6)}),
            ("latency", "ns", {"a": (1500.0, 1600.0, 1700.0), "b": (1e3, 2e3, 3e3)}),
        )
        for series, found in values.items()
        for n, value in zip((1, 2, 4), found, strict=True)
    ]
    frame = pd.DataFrame(rows)
    common = {"experiment": "p/e", "profile": "cx5", "fabric": "sim", "clock": "virtual"}
    for name, value in {**common, "seed": 1, "repetition": 0}.items():
        frame[name] = value
    frame["node"] = frame["thread"] = -1
    return Data(frame)


@pytest.mark.parametrize(
    ("measured", "expected", "hint", "note", "verdict"),
    [
        (1.09, 1, "exact", "", "held"),
        (1.11, 1, "exact", "", "missed"),
        (0.76, 1, "approx", "", "held"),
        (0.74, 1, "average-over-sweep", "", "missed"),
        (1.14, 1, "peak-only", "", "held"),
        (1.16, 1, "peak-only", "", "missed"),
        (5, [1, 4], "approx", "", "held"),
        (5.1, [1, 4], "approx", "", "missed"),
        (0.74, [1, 4], "approx", "", "missed"),
        (3, 10, "exact", "upper bound; typical is less", "held"),
        (10.5, 10, "exact", "upper bound", "missed"),
        (99, 10, "exact", "more than; see table 5", "held"),
        (9.9, 10, "exact", "lower bound over large sizes", "missed"),
        (11.5, 10, "exact", "cited, up to", "missed"),
        (3, 10, "exact", "cited, up to", "held"),
        (10.1, 10, "approx", "up to; the text rounds", "missed"),
        (3, 10, "exact", "below", "held"),
        (10.1, 10, "approx", "cited, below", "missed"),
        (3, 10, "exact", "stays below; each or both", "held"),
        (6, 7, "exact", "below 7 for reads above 256 KB", "held"),
        (0, 10, "exact", "up to", "missed"),
        (-1, 10, "exact", "stays below this", "missed"),
        (99, 10, "exact", "cited, more than", "held"),
        (9, 10, "approx", "at least; without buffers", "missed"),
        (3, [0, 15], "approx", "only an upper bound of 15 is given", "held"),
        (16, [0, 15], "approx", "only an upper bound of 15 is given", "missed"),
        (0, [0, 15], "approx", "only an upper bound of 15 is given", "missed"),
        (29, [30, 100], "approx", "only a lower bound of 30 is given", "missed"),
        (3, 10, "exact", "the largest gap; throughput falls beyond", "missed"),
        (3, 10, "exact", "converges only if the latency stays below this", "missed"),
        (0, 0, "exact", "", "held"),
    ],
)
def test_tolerances_ranges_and_bounds(
    measured: float, expected: Any, hint: str, note: str, verdict: str
) -> None:
    assert claims.judge(claim(expected, hint=hint, note=note), measured)[0] == verdict


def test_none_may_be_below_a_bound_of_a_count() -> None:
    assert claims.judge(claim(1, unit="rounds", note="upper bound"), 0)[0] == "held"


def test_the_claims_of_the_papers_state_these_bounds() -> None:
    bounds = {c.id: c.bound for c in claims.load().values() if c.bound}
    assert bounds["krcore/dct_reconnect"] == "upper"  # "below"
    assert bounds["krcore/f12a_dcqp"] == "upper"  # "stays below; ..."
    assert bounds["erpc/signaled_rate_loss"] == "upper"  # "cited, up to; ..."
    assert bounds["erpc/connectx5_rq_limit"] == "lower"  # "..., so a lower bound; ..."
    assert "krcore/f15b_lite_thread_limit" not in bounds  # a crossover
    assert "loco/fig7_latency_requirement" not in bounds
    assert len(bounds) == 34


def test_what_is_no_number_is_not_evaluated() -> None:
    with raises(NotEvaluated, "nan"):
        claims.judge(claim(1), float("nan"))


def test_text_is_decided_by_code_alone() -> None:
    text = claim("a is faster than b")
    assert claims.judge(text, True)[0] == "held"
    assert claims.judge(text, decide.Decision(False, "b a"))[:2] == ("missed", "b a")
    with pytest.raises(NotEvaluated):
        claims.judge(text, 1.0)


def outcome(decider: decide.Decider, unit: str = "x") -> Any:
    found = decider(data(), claim(1, unit=unit))
    if isinstance(found, decide.Decision):
        return found.measured if found.holds is None else found.holds
    return found


def test_deciders_convert_and_compare() -> None:
    a, b = {"series": "a"}, {"series": "b"}
    assert outcome(decide.value("latency", series="a", n=1), "us") == pytest.approx(1.5)
    assert outcome(decide.value("rate", series="a", n=4), "M req/s") == pytest.approx(4)
    assert outcome(decide.ratio("rate", a, b, n=4)) == pytest.approx(4 / 3)
    assert outcome(decide.ratio("rate", a, b, "loss", n=1), "percent") == pytest.approx(50)
    assert outcome(decide.extreme("rate", "n", series="b"), "Mrps") == pytest.approx(3)
    assert outcome(decide.rank("rate", [b, a], n=1)) is True
    assert outcome(decide.rank("rate", [b, a], n=4)) is False
    assert outcome(decide.best("rate", "series", "a", "max", n=4)) is True
    assert outcome(decide.trend("latency", "n", "rises", series="b")) is True
    assert outcome(decide.trend("latency", "n", "falls", series="b")) is False
    assert outcome(decide.flat("latency", "n", within=0.2, series="a")) is True
    assert outcome(decide.flat("latency", "n", within=0.1, series="a")) is False
    assert outcome(decide.crossover("rate", "n", a, b)) == 4
    assert outcome(decide.crossover("latency", "n", a, {"series": "b"}, "above")) == 1


PAIR: tuple[decide.Point, decide.Point] = ({"series": "a"}, {"series": "b"})


@pytest.mark.parametrize(
    ("rates", "holds"),
    [
        ((4, 2, 1), True),  # without the cause the lead is gone
        ((4, 2, 2.8), True),  # more than half of it is gone
        ((4, 2, 2.9), False),  # less than half of it is gone
        ((4, 2, 8), False),  # the lead grows
        ((2, 4, 1), False),  # there is no lead
    ],
)
def test_a_cause_is_one_if_the_lead_goes_with_it(
    rates: tuple[float, float, float], holds: bool
) -> None:
    frame = data().frame
    frame = frame[frame["metric"] == "rate"]
    three = pd.concat(
        frame[frame["series"] == "a"].assign(series=name, value=rate)
        for name, rate in zip(("a", "b", "a without"), rates, strict=True)
    ).reset_index(drop=True)
    without = ({"series": "a without"}, {"series": "b"})
    decider = decide.cause("rate", ahead=PAIR, without=without)
    found = decider(Data(three), claim("a is ahead because of x"))
    assert isinstance(found, decide.Decision)
    assert found.holds is holds, found


def test_a_cause_is_judged_at_the_points_that_all_have() -> None:
    frame = data().frame
    more = frame[(frame["series"] == "a") & (frame["n"] == 4)].assign(series="x", value=1.0)
    decider = decide.cause("rate", ahead=PAIR, without=({"series": "x"}, {"series": "b"}))
    joined = Data(pd.concat([frame, more], ignore_index=True))
    found = decider(joined, claim("why"))
    assert isinstance(found, decide.Decision)
    assert found.measured == "1.33 times, 0.00 without the cause"
    apart = frame[(frame["series"] == "a") == (frame["n"] == 1)].reset_index(drop=True)
    with raises(NotEvaluated, "in common"):
        decide.cause("rate", ahead=PAIR, without=PAIR)(Data(apart), claim("why"))


def test_a_claim_that_states_others_again_holds_with_all_of_them() -> None:
    def constantly(holds: bool) -> decide.Decider:
        return lambda *_: decide.Decision(holds)

    both = decide.all_of({"p/a": constantly(True), "p/b": constantly(False)})
    assert both(data(), claim("x")) == decide.Decision(False, "a holds, b does not")
    assert decide.all_of({"p/a": constantly(True)})(data(), claim("x")).holds is True


def test_the_data_know_which_rows_were_read() -> None:
    found = data()
    found.unit("rate")
    assert found.rows_read() == frozenset()
    found.value("rate", series="a", n=2)
    assert found.rows_read() == frozenset({1})
    found.series("rate", "n", series="b")
    assert found.rows_read() == frozenset({1, 3, 4, 5})
    assert len(found.frame)
    assert found.rows_read() is None


@pytest.mark.parametrize(
    ("decider", "values"),
    [
        (decide.value("speed"), ["speed"]),
        (decide.value("rate", series="c", n=1), ["series", "c"]),
        (decide.value("rate", n=1), ["series", "a", "b"]),
        (decide.trend("rate", "n", "rises", series="a", n=1), ["n"]),
    ],
)
def test_what_the_data_do_not_say_is_not_evaluated(
    decider: decide.Decider, values: list[str]
) -> None:
    with raises(NotEvaluated, *values):
        decider(data(), claim(1, unit="op/s"))


def test_all_claims_are_listed_as_json(tmp_path: Path) -> None:
    done = pyrdma("claims", "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == len(claims.load()) == 1204
    assert all(list(entry) == FIELDS for entry in found)
    assert {entry["verdict"] for entry in found} <= {*claims.VERDICTS}
    order = [claims.VERDICTS.index(entry["verdict"]) for entry in found]
    assert order == sorted(order)
    empty = [e for e in found if e["verdict"] == "not evaluated"]
    assert all(e["reason"] and e["measured"] is None for e in empty)
    one = json.loads(pyrdma("claims", "loco", "--json", "--out", str(tmp_path)).stdout)
    assert {entry["paper"] for entry in one} == {"loco"}
    assert len(one) == 34


def test_the_list_leaves_out_what_no_experiment_decides(tmp_path: Path) -> None:
    open_claims = set(claims.load()) - set(claims.deciders())
    undecided = min(claim for claim in open_claims if claim.startswith("tailwind/"))
    decided = min(claim for claim in claims.deciders() if claim.startswith("tailwind/"))
    short = pyrdma("claims", "tailwind", "--out", str(tmp_path)).stdout
    whole = pyrdma("claims", "tailwind", "--all", "--out", str(tmp_path)).stdout
    assert decided in short
    assert undecided not in short
    assert "--all" in short
    assert undecided in whole


def verdict(name: str, verdict: str, **more: Any) -> Verdict:
    """Return a verdict on a claim of the papers."""
    known = claims.load()[name]
    fields = {"expected": known.value, "unit": known.unit, "measured": 1.25, "reason": "because"}
    about = (known.paper, known.experiment, known.kind, known.role)
    return Verdict(name, *about, verdict, **{**fields, **more})


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    """Make the command judge every claim of the papers, of which a few are missed."""
    missed = sorted(claims.load())[::100]
    found = [verdict(n, "missed" if n in missed else "held") for n in sorted(claims.load())]
    found.sort(key=lambda v: claims.VERDICTS.index(v.verdict))
    monkeypatch.setattr(claims, "evaluate", lambda *_, **__: found)
    return found


def shown(capsys: pytest.CaptureFixture[str], **options: Any) -> list[str]:
    results.show_claims(**options)
    return capsys.readouterr().out.splitlines()


def test_each_claim_is_one_line_below_the_counts(
    judged: list[Verdict], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys)
    assert max(map(len, lines)) <= 100
    first = [line.split()[0] for line in lines if line.startswith(tuple(claims.papers()))]
    assert first == [v.claim for v in judged], "misses first, no id is shortened"
    [head] = [n for n, line in enumerate(lines) if line.split()[:2] == ["claim", "verdict"]]
    count = sum(v.role == "calibration" and v.verdict == "held" for v in judged if v.paper == "nic")
    [row] = [line.split() for line in lines[:head] if line.split()[:2] == ["nic", "calibration"]]
    assert row[4] == str(count)


def test_a_line_has_the_published_number_with_its_bound_and_unit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("krcore/dct_reconnect", "krcore/f10a_rc_overhead", "krcore/f10a_rank")
    found = [verdict(name, "held", measured="a < b" if "rank" in name else 1.25) for name in names]
    monkeypatch.setattr(claims, "evaluate", lambda *_, **__: found)
    bound, span, text = (line.split() for line in shown(capsys)[-4:-1])
    assert bound[2:] == ["<=", "1", "us", "1.25", "us"]
    assert span[2:] == ["25", "to", "41", "percent", "1.25", "percent"]
    assert text[-3:] == ["a", "<", "b"]


def test_a_narrow_terminal_shortens_no_id(
    judged: list[Verdict], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = shown(capsys, show_all=True)
    assert {v.claim for v in judged} <= {line.split()[0] for line in lines if line}


def test_missed_claims_alone_are_listed(
    judged: list[Verdict], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys, missed=True)
    listed = [line.split()[0] for line in lines if line.startswith(tuple(claims.papers()))]
    assert listed == [v.claim for v in judged if v.verdict == "missed"]
    one = json.loads("\n".join(shown(capsys, missed=True, as_json=True)))
    assert [entry["claim"] for entry in one] == listed
    held = [v for v in judged if v.verdict == "held"]
    monkeypatch.setattr(claims, "evaluate", lambda *_, **__: held)
    assert shown(capsys, missed=True)[-1] == "no claim is missed"


@pytest.mark.usefixtures("judged")
def test_one_claim_is_shown_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, show="krcore/f10a_rc_overhead")
    assert max(map(len, lines)) <= 100
    rows = {line[2:16].strip(): line[16:] for line in lines[1:]}
    claim = claims.load()["krcore/f10a_rc_overhead"]
    assert rows["reason"] == "because"
    assert rows["published"] == "25 to 41 percent"
    assert rows["decided by"] == claim.experiment
    assert "5.2" in rows["paper"]
    assert claim.note.split()[0] in rows["note"]
    [entry] = json.loads("\n".join(shown(capsys, show=claim.id, as_json=True)))
    assert list(entry) == FIELDS


def test_options_that_choose_differently_are_refused() -> None:
    with raises(InvalidArgument, "'krcore/f10a_rc_overhea'", "krcore/f10a_rc_overhead"):
        results.show_claims(show="krcore/f10a_rc_overhea")
    with raises(InvalidArgument, "krcore/f10a_rank", "'loco'"):
        results.show_claims("loco", show="krcore/f10a_rank")
    with raises(InvalidArgument, "--show", "--missed"):
        results.show_claims(missed=True, show="krcore/f10a_rank")


def test_every_claim_that_is_decided_exists_and_once() -> None:
    assert claims.deciders()
