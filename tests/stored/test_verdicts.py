"""Verdicts beside the numbers: by construction, one datum, reasons of misses, sensitivity."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyrdma import claims, estimates
from pyrdma.claims import Verdict
from pyrdma.errors import Error, InvalidArgument
from pyrdma.profiles import Parameter, Profile
from pyrdma.sensitivity import Sensitivity, path_of
from tests.errors import raises
from tests.harness.support import pyrdma
from tests.stored.tree import Tree
from tests.stored.tree import tree as tree

MORE = """
  - {id: again, experiment: rates, kind: absolute, role: validation, series: s, params: {},
     metric: rate, value: 0.4, unit: Kop/s, tolerance_hint: exact, where: "1"}
  - {id: both, experiment: rates, kind: rank, role: validation, series: s, params: {},
     metric: rate, value: "peak and fast", unit: op/s, tolerance_hint: exact, where: "1"}
  - {id: fast, experiment: rates, kind: trend, role: validation, series: s, params: {},
     metric: rate, value: "rises", unit: op/s, tolerance_hint: exact, where: "1"}
  - {id: made, experiment: rates, kind: absolute, role: validation, series: s, params: {},
     metric: rate, value: 100, unit: op/s, tolerance_hint: exact, where: "1"}
  - {id: link, experiment: rates, kind: absolute, role: validation, series: s, params: {},
     metric: rate, value: 40, unit: Gbps, tolerance_hint: exact, where: "1"}
  - {id: half, experiment: rates, kind: absolute, role: calibration, series: s, params: {},
     metric: rate, value: 300, unit: op/s, tolerance_hint: exact, where: "1"}
"""
DECIDES = """decides={
        "fake/peak": decide.extreme("rate", "n"),
        "fake/again": decide.extreme("rate", "n"),
        "fake/both": decide.all_of({"fake/fast": FAST}),
        "fake/fast": FAST,
        "fake/made": decide.by_construction(decide.value("rate", n=1), "the factor is 100"),
        "fake/link": decide.profile("link.rate_gbps"),
        "fake/half": decide.extreme("rate", "n"),
    },
    misses={"fake/half": "the source doubts it"},"""


def more_claims(tree: Tree) -> None:
    """Add claims of all kinds to the fake paper."""
    file = tree.folder / "experiments/claims/fake.yaml"
    file.write_text(file.read_text().rstrip() + MORE)
    tree.edit('decides={"fake/peak": decide.extreme("rate", "n")},', DECIDES)
    tree.edit("def measure", 'FAST = decide.trend("rate", "n", "rises")\n\n\ndef measure')


def verdicts(tree: Tree) -> dict[str, Verdict]:
    return {v.claim.partition("/")[2]: v for v in claims.evaluate(tree.out)}


def test_what_holds_by_construction_is_no_prediction(tree: Tree) -> None:
    more_claims(tree)
    tree.run()
    found = verdicts(tree)
    assert found["made"].verdict == "by construction"
    assert "the factor is 100" in found["made"].reason
    assert found["link"].verdict == "by construction"
    assert found["peak"].verdict == "held"
    assert (found["peak"].error, found["made"].error) == (0, None)
    experiment = claims.deciders()["fake/peak"]
    assert [c.id for c in claims.predictions(experiment)] == [
        f"fake/{name}" for name in ("peak", "again", "both", "fast")
    ]
    tree.edit("FACTOR = 100", "FACTOR = 50")
    tree.run()
    assert verdicts(tree)["made"].verdict == "missed"


def test_two_claims_on_one_datum_count_once(tree: Tree) -> None:
    more_claims(tree)
    tree.run()
    found = verdicts(tree)
    assert found["again"].same_as == "fake/peak", "400 op/s are 0.4 Kop/s"
    assert found["both"].same_as == "fake/fast"
    assert not found["fast"].same_as, "the same rows, another question"
    assert not found["half"].same_as, "of another role"
    counted = {v.claim for v in claims.counted(found.values())}
    assert counted == {f"fake/{name}" for name in ("peak", "fast", "made", "link", "half")}


def test_a_reason_of_a_miss_is_displayed(tree: Tree) -> None:
    more_claims(tree)
    tree.run()
    half = verdicts(tree)["half"]
    assert half.verdict == "missed"
    assert "the source doubts it" in half.reason
    assert not half.is_wrong_profile
    tree.edit('misses={"fake/half": "the source doubts it"},', "")
    assert verdicts(tree)["half"].is_wrong_profile
    tree.edit("    fabrics=", '    misses={"fake/gone": "why"},\n    fabrics=')
    with raises(Error, "fake/gone"):
        tree.run()


ESTIMATED = {"cpu.poll_ns": 20.0, "cpu.atomic_ns": 10.0, "cpu.numa_hop_ns": 0.0, "nic.has_dc": 1.0}


@pytest.fixture
def estimated(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Return a tree whose rate depends on two of four estimates, one of them in one point."""
    load = Profile.load.__func__  # type: ignore[attr-defined]

    def with_estimates(cls: type, name: str, overrides: dict[str, float] | None = None) -> Profile:
        profile: Profile = load(cls, name, overrides)
        for key, parameter in profile.parameters.items():
            source = "estimate: a guess" if key in ESTIMATED else "vendor: a data sheet"
            value = ESTIMATED.get(key, parameter.value)
            value = (overrides or {}).get(key, value)
            made = Parameter(value, parameter.unit, source)
            profile.parameters[key] = made  # type: ignore[index]
        return profile

    monkeypatch.setattr(Profile, "load", classmethod(with_estimates))
    monkeypatch.setattr(estimates, "Workers", lambda _: ThreadPoolExecutor(1))
    more_claims(tree)
    tree.edit(
        '    return {"rate": (',
        "    from pyrdma import Profile\n"
        "    with open('measured', 'a') as log:\n"
        "        log.write(f\"{point['n']} {dict(point.overrides)}\\n\")\n"
        "    value = Profile.load(point.profile, point.overrides).values()\n"
        '    slow = value["cpu.poll_ns"] / 20 if point["n"] == 4 else value["cpu.atomic_ns"] / 1e6\n'  # noqa: E501
        '    return {"rate": (slow * ',
    )
    return tree


def search(tree: Tree) -> list[str]:
    """Search, and return the points that were measured."""
    log = tree.folder / "measured"
    log.unlink(missing_ok=True)
    estimates.measure(tree.out, say=lambda _: None)
    return log.read_text().splitlines() if log.exists() else []


def test_a_held_claim_that_an_estimate_turns_over_is_not_robust(estimated: Tree) -> None:
    estimated.run()
    before = verdicts(estimated)
    assert (before["peak"].verdict, before["peak"].robust) == ("held", None)
    measured = search(estimated)
    assert not [line for line in measured if "has_dc" in line or "handler" in line]
    found = verdicts(estimated)
    assert found["peak"].verdict == "held, not robust"
    assert found["peak"].changed_by == ("cpu.poll_ns halved", "cpu.poll_ns doubled")
    assert "missed with cpu.poll_ns halved" in found["peak"].reason
    assert (found["fast"].verdict, found["fast"].robust) == ("held", True)
    assert found["link"].verdict == "by construction"
    assert found["half"].changed_by == (), "calibrated, not predicted"
    estimated.run(fabric="shm")
    real = {v.claim: v for v in claims.evaluate(estimated.out, fabric="shm")}
    assert real["fake/peak"].verdict == "held", "real time has no profile"


def test_a_search_measures_each_point_once_and_resumes(estimated: Tree) -> None:
    def stop(text: str) -> None:
        if "halved" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        estimates.measure(estimated.out, say=stop)
    first = (estimated.folder / "measured").read_text().splitlines()
    partial = verdicts(estimated)
    assert partial["peak"].changed_by, "what was found is kept"
    assert partial["fast"].robust is None, "not all was tried"
    second = search(estimated)
    assert first
    assert second
    assert len({*first, *second}) == len(first) + len(second), "no point twice"
    assert search(estimated) == []
    assert verdicts(estimated)["fast"].robust is True
    # Only the estimates that matter change whole sweeps.
    changed = [line for line in first + second if "{}" not in line]
    assert len(changed) < 2 * 2 * len(ESTIMATED)


def test_a_search_by_other_code_or_profile_does_not_count(estimated: Tree) -> None:
    search(estimated)
    assert verdicts(estimated)["peak"].verdict == "held, not robust"
    estimated.edit('decide.extreme("rate", "n")', 'decide.value("rate", n=4)')
    assert verdicts(estimated)["peak"].verdict == "held"
    assert search(estimated) == [], "judged again by the stored points"
    assert verdicts(estimated)["peak"].verdict == "held, not robust"
    estimated.edit("FACTOR = 100", "FACTOR = 100.0")
    assert verdicts(estimated)["peak"].verdict == "stale"


def test_a_failed_point_leaves_the_verdict_untested(
    estimated: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimated.run()
    monkeypatch.setenv("FAKE_FAILS", "4")
    lines: list[str] = []
    estimates.measure(estimated.out, say=lines.append)
    assert any("told to fail" in line for line in lines)
    found = verdicts(estimated)["fast"]
    assert (found.verdict, found.robust) == ("held", None)


def test_a_damaged_record_is_left_out(estimated: Tree) -> None:
    search(estimated)
    path = path_of(estimated.out, claims.deciders()["fake/peak"])
    assert set(json.loads(path.read_text())) == {*Sensitivity().__dict__}
    for damage in ("{", "[]", '{"basis": 1}'):
        path.write_text(damage)
        with pytest.warns(UserWarning, match=r"verdicts\.json"):
            assert verdicts(estimated)["peak"].verdict == "held"


def test_sensitivity_needs_the_simulator(tree: Tree) -> None:
    with raises(InvalidArgument, "nobody"):
        estimates.measure(tree.out, "nobody")
    done = pyrdma("claims", "--sensitivity", "--fabric", "shm", "--out", str(tree.out))
    assert done.returncode != 0
    assert "--sensitivity" in done.stderr
    assert "'shm'" in done.stderr


def test_a_verdict_says_over_how_many_seeds_it_holds(tree: Tree) -> None:
    tree.run()
    assert tree.verdict().seeds == 0, "one seed has no other"
    tree.run(seeds=(1, 2, 3))
    alike = tree.verdict()
    assert (alike.verdict, alike.seeds, alike.seeds_apart) == ("held", 3, ())
    assert "with each of 3 seeds" in alike.reason
    # A seed adds one op/s for each above the first; the claim allows 440.
    tree.run(seeds=(1, 2, 42, 43))
    some = tree.verdict()
    assert (some.verdict, some.measured) == (claims.NOT_ROBUST, 402.0)
    assert (some.seeds, some.seeds_apart, some.robust) == (5, (42, 43), False)
    assert "missed with 2 of 5 seeds alone: 42, 43" in some.reason
    tree.run(seeds=(44, 45, 46))
    most = tree.verdict()
    assert (most.verdict, most.seeds_apart) == ("missed", (1, 2, 3))
    assert "held with 3 of 8 seeds alone: 1, 2, 3" in most.reason
    done = pyrdma("claims", "fake", "--out", str(tree.out), cwd=tree.folder)
    assert "5/8" in done.stdout


def test_seeds_that_decide_nothing_alone_are_counted_apart(tree: Tree) -> None:
    # The rate of a seed is above 410 op/s from the eleventh on.
    tree.edit(
        'decides={"fake/peak": decide.extreme("rate", "n")}',
        'decides={"fake/peak": lambda data, claim: decided(data)}',
    )
    tree.edit(
        "experiment = Experiment(",
        "def decided(data):\n"
        "    found = float(data.series('rate', 'n').max())\n"
        "    if found > 410:\n"
        "        raise decide.NotEvaluated('too fast')\n"
        "    return found\n\n\n"
        "experiment = Experiment(",
    )
    tree.run(seeds=(1, 2, 3, 12))
    verdict = tree.verdict()
    assert (verdict.verdict, verdict.seeds, verdict.seeds_apart) == ("held", 3, ())
    assert "with each of 3 seeds; undecided by 1 of 4 seeds alone" in verdict.reason


@pytest.mark.usual_seeds
@pytest.mark.parametrize(("quick", "seeds"), [(True, 3), (False, 6)])
def test_a_run_without_seeds_measures_several_in_virtual_time(
    tree: Tree, quick: bool, seeds: int
) -> None:
    report = tree.run(seeds=None, quick=quick)
    points = 2 if quick else 3
    assert report.outcome.measured == seeds * points
    assert json.loads((report.folder / "run.json").read_text())["seeds"] == [*range(1, seeds + 1)]
    assert tree.verdict().seeds == seeds
    assert tree.run(seeds=None, quick=quick, fabric="shm").outcome.measured == points
