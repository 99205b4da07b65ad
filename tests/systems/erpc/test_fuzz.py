"""The scenarios of eRPC: on the command line and from Python."""

from __future__ import annotations

import pytest

from pyrdma import fuzz as fuzzing
from pyrdma.check import check
from pyrdma.errors import Unavailable
from tests.errors import unnamed
from tests.fuzz_harness.test_fuzz import command


def test_an_unknown_bug_lists_the_bugs() -> None:
    ended = command("fuzz", "erpc", "--mutation", "unknown")
    assert ended.returncode == 2
    assert unnamed(ended.stderr, "unknown", "executes_again") == []


def test_an_unknown_preset_lists_the_presets() -> None:
    ended = command("fuzz", "erpc", "--preset", "papers")
    assert ended.returncode == 2
    assert unnamed(ended.stderr, "papers", "paper", "best") == []


def outcome_of(options: fuzzing.Options, seed: int) -> dict[str, object]:
    """Run a seed, or skip the test where a library of the scenario is missing."""
    try:
        return fuzzing.run(options, seed)
    except Unavailable as problem:
        pytest.skip(str(problem))


@pytest.mark.parametrize(
    ("scenario", "model", "mutation"),
    [
        ("erpc_raft", "kv", "vote_not_persisted"),
        ("erpc_raft_group", "kv", "term_not_persisted"),
        ("erpc_store", "map", "scan_of_two_moments"),
    ],
)
def test_a_store_is_judged_and_its_bug_is_found(scenario: str, model: str, mutation: str) -> None:
    options = fuzzing.Options(system=scenario, nodes=3, operations=100)
    for seed in range(1, 9):
        assert outcome_of(options, seed)["violations"] == []
    ((_, history),) = fuzzing.run(options, 1, history=True)["histories"]
    verdict = check(history.encode())
    assert (verdict.model, verdict.answer) == (model, "yes")
    buggy = fuzzing.Options(system=scenario, nodes=3, operations=100, mutation=mutation)
    assert any(outcome_of(buggy, seed)["violations"] for seed in range(1, 30))


@pytest.mark.parametrize(
    ("scenario", "fault"),
    [("erpc_raft_group", "disk_lies"), ("erpc_raft", "disk_rot"), ("erpc_store", "host_crash")],
)
def test_a_fault_that_a_store_cannot_have_is_refused(scenario: str, fault: str) -> None:
    ended = command("fuzz", scenario, "--faults", f"{fault}.rate=0.1")
    assert ended.returncode == 2
    assert unnamed(ended.stderr, scenario, fault, "loss") == []
