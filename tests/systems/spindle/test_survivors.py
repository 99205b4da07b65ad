"""Processes that are killed under load: the others go on in a new view, and nothing is left.

A run of all tests kills three. ``PYRDMA_KILLS=100 sh tests/run.sh python
tests/systems/spindle/test_survivors.py`` kills a hundred in a row, in each of the two tests.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import check
from pyrdma.processes import ProcessCluster
from tests.errors import raises
from tests.leftovers import shared_memory

NODES = 3
KILLS = int(os.environ.get("PYRDMA_KILLS", "3"))
SUSPICION_S = 0.5
PAUSE_S = 1.5
"""A killed process starts again within this time, and joins, also on a busy machine."""


@dataclass
class Killer:
    """Kills and restarts a random node, again and again."""

    cluster: ProcessCluster
    kills: list[tuple[int, int]] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    failure: BaseException | None = None

    def run(self) -> None:
        try:
            choice = random.Random(KILLS)
            time.sleep(PAUSE_S)
            for number in range(KILLS):
                # The first one leads the group.
                node = 0 if number == 0 else choice.randrange(NODES)
                self.processes += self.cluster.process_ids
                self.kills.append((node, self.cluster.now_ns))
                self.cluster.kill(node)
                time.sleep(2 * SUSPICION_S)
                self.cluster.restart(node)
                time.sleep(PAUSE_S)
        except BaseException as error:
            self.failure = error


@dataclass
class Lives:
    """What a history says of each start of a node."""

    views: dict[int, list[tuple[int, list[int]]]]
    delivered: dict[int, dict[int, list[int]]]

    @classmethod
    def of(cls, history: bytes) -> Lives:
        views = defaultdict(list)
        delivered: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for line in history.splitlines():
            event: dict[str, Any] = json.loads(line)
            if event.get("f") == "view":
                views[event["node"]].append((event["time"], event["value"]))
            elif event.get("f") == "deliver":
                sender, number = event["value"]
                delivered[event["node"]][sender].append(number)
        return cls(views, delivered)


def run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, **load: Any
) -> tuple[rd.Result, list[tuple[int, int]]]:
    """Run the load while nodes die, and check that nothing is left of them."""
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = shared_memory()
    with rd.Cluster.local(nodes=NODES, fabric="shm", mode="process") as cluster:
        assert isinstance(cluster, ProcessCluster)
        killer = Killer(cluster)
        thread = threading.Thread(target=killer.run)
        thread.start()
        workload = rd.workload.SpindleSurvivors(
            preset="best", suspicion_timeout_ns=round(SUSPICION_S * 1e9), **load
        )
        seconds = KILLS * (2 * SUSPICION_S + PAUSE_S + 0.2) + 2 * PAUSE_S
        result = cluster.run(workload, duration_s=seconds)
        thread.join()
        processes = killer.processes + cluster.process_ids
    if killer.failure:
        raise killer.failure
    assert not any(Path(f"/proc/{process}").exists() for process in processes)
    assert shared_memory() == before
    assert list(folder.iterdir()) == []
    assert {s.value for s in result.samples if s.metric == "joins"} <= {0, 1}, "a node was excluded"
    return result, killer.kills


@pytest.mark.slow
@pytest.mark.timeout(120 + 4 * KILLS)
def test_survivors_have_a_new_view_in_time_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A node that lives through all kills delivers at most as many events as a history holds.
    pace = max(100_000, 40_000 * KILLS)
    result, kills = run(monkeypatch, tmp_path, interval_ns=pace, history=True)
    history = result.history()
    verdict = check.check(history)
    assert verdict.ok, verdict.text
    lives = Lives.of(history)

    slowest = 0.0
    for node, killed in kills:
        for own, views in lives.views.items():
            if views[0][0] >= killed or own >> 24 == node:
                continue
            entered, members = next(view for view in views if view[0] > killed)
            slowest = max(slowest, (entered - killed) * 1e-9)
            before = [view for view in views if view[0] < killed][-1][1]
            dead = [member for member in before if member >> 24 == node]
            assert not set(dead) & set(members), "the next view has the dead member"
    assert 0 < slowest < 10 * SUSPICION_S

    # Those that are alive at the end have delivered the same of each other, without a gap.
    for sender in lives.delivered:
        for own, delivered in lives.delivered.items():
            numbers = delivered[sender]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert numbers[-1] == lives.delivered[sender][sender][-1], (own, sender)
    print(f"{len(kills)} kills, the slowest view after {slowest * 1e3:.0f} ms")


@pytest.mark.slow
@pytest.mark.timeout(120 + 4 * KILLS)
def test_survivors_lose_nothing_at_full_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, kills = run(monkeypatch, tmp_path, interval_ns=0, message=10_240)  # fails at a gap
    assert result.value("ops") > 10_000
    assert len(kills) == KILLS


def test_nobody_dies_in_a_simulation() -> None:
    load = rd.workload.SpindleSurvivors(interval_ns=20_000, history=True)
    with rd.Cluster.sim(nodes=3, profile="spindle", seed=1) as cluster:
        result = cluster.run(load, duration_s=0.002)
    assert check.check(result.history()).ok
    assert result.value("views") == NODES
    assert result.value("joins") == 0
    assert result.value("ops") == NODES * result.value("sent") > 200


def test_a_history_has_a_bound() -> None:
    load = rd.workload.SpindleSurvivors(
        preset="best", interval_ns=0, history=True, message=64, max_message=64
    )
    with (
        rd.Cluster.sim(nodes=2, profile="spindle", seed=1) as cluster,
        raises(rd.InvalidArgument, "history", 1 << 18, "interval_ns"),
    ):
        cluster.run(load, duration_s=0.06)


def test_a_message_fits_its_slot() -> None:
    load = rd.workload.SpindleSurvivors(message=2000, max_message=1000)
    with (
        rd.Cluster.sim(nodes=2, profile="spindle", seed=1) as cluster,
        raises(rd.InvalidArgument, "message", 2000, "max_message"),
    ):
        cluster.run(load, duration_s=0.001)
