"""The example programs show what their docstrings say."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = sorted((Path(__file__).parents[2] / "experiments/examples/programs").glob("*.py"))


def example(name: str) -> Any:
    return importlib.import_module(f"pyrdma.experiments.examples.programs.{name}")


def test_retried_requests_are_executed_once() -> None:
    rpc = example("rpc_retries")
    result, executed = rpc.run(seed=2)
    requests = rpc.CLIENTS * rpc.REQUESTS
    assert result.latency("rpc").count == len(executed) == requests
    assert result.value("retried") > 0
    assert result.value("reconnects") == rpc.CLIENTS
    assert set(executed.values()) == {1}
    _, executed = rpc.run(seed=2, deduplicate=False)
    assert max(executed.values()) > 1


def test_an_open_loop_shows_the_knee() -> None:
    loop = example("open_loop")
    p99 = {load: loop.run(load, seed=2).percentile(99) for load in (0.1, 0.5, 1.1)}
    assert p99[0.5] < 5 * p99[0.1]
    assert p99[1.1] > 50 * p99[0.1]
    assert loop.knee(p99) == 0.5


def test_the_knee_is_drawn_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    loop = example("open_loop")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(loop, "LOADS", (0.1, 0.5))
    monkeypatch.setattr(sys, "argv", ["open_loop", "--out", str(tmp_path / "knee.png")])
    loop.main()
    assert (tmp_path / "knee.png").stat().st_size > 10_000
    assert "the knee: p99 is within 5 times its least up to load 0.5" in capsys.readouterr().out


def test_no_term_has_two_leaders_and_one_leads_after_each_fault() -> None:
    election = example("leader_election")
    for seed in range(5):
        twice, gap_ms = election.judge(election.run(seed))
        assert not twice
        assert gap_ms < 250
    assert any(election.judge(election.run(seed, quorum=2))[0] for seed in range(5))


def test_the_longest_time_without_a_leader_counts_both_ends_of_the_run() -> None:
    election = example("leader_election")
    end = int(election.RUN_S * 1e9)
    assert election.judge({(1, 0): [7_000_000, 20_000_000], (2, 1): [0, end]}) == ([], 0)
    assert election.judge({(1, 0): [7_000_000, end]}) == ([], 7)
    assert election.judge({(3, 0): [0, end - 9_000_000], (3, 1): [1, 2]}) == ([3], 9)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 80


def test_the_replicated_register_breaks_and_its_mend_holds_over_the_same_seeds() -> None:
    register = example("replicated_register")
    seeds = range(5)
    assert sum(register.run(seed, fixed=False).answer == "no" for seed in seeds) >= 3
    assert all(register.run(seed, fixed=True).ok for seed in seeds)
