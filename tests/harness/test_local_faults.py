"""Faults of clusters on this machine, through the public interface."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import pyrdma as rd
from pyrdma import processes, workload
from tests.errors import raises

READS = workload.VerbsLoad(op="read", size=8, depth=4, mode="rate")


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_feigned_full_queue_is_counted_and_survived(mode: Literal["thread", "process"]) -> None:
    with rd.Cluster.local(nodes=2, mode=mode, faults={"queue_full": 0.2}) as cluster:
        assert cluster.run(READS, duration_s=0.05).value("rate") > 0
        fired, reached = cluster.fault_counters()["queue_full"]
        assert fired == reached > 10
        assert cluster.fault_counters()["loss"] == (0, 0)


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_memory_pressure_fails_the_set_up(mode: Literal["thread", "process"]) -> None:
    with (
        rd.Cluster.local(nodes=2, mode=mode, faults={"memory_pressure.rate": 1}) as cluster,
        raises(rd.Exhausted, "memory_pressure"),
    ):
        cluster.run(READS, duration_s=0.05)


def test_a_node_that_does_not_say_its_counts_ends_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: Any = rd.Cluster.local(nodes=2, mode="process", faults={"queue_full": 0.2})
    with made as cluster:
        monkeypatch.setattr(processes, "START_S", 0.5)  # the nodes have started
        cluster.stop(1)
        with raises(rd.Timeout, "counting faults", "node 1"):
            cluster.fault_counters()
        with raises(rd.InvalidArgument, "closed"):  # its answer would be taken for that of a run
            cluster.run(READS, duration_s=0.05)


def test_no_faults_count_nothing() -> None:
    with rd.Cluster.local(nodes=2, mode="thread") as cluster:
        assert set(cluster.fault_counters().values()) == {(0, 0)}


@pytest.mark.parametrize("mode", ["thread", "process"])
@pytest.mark.parametrize(
    ("faults", "values"),
    [
        ({"duplicates": 0.1}, ["duplicates", "duplicate"]),
        ({"loss": 2.0}, ["loss", 2, 0, 1]),
        ({"partition": 1.0}, ["partition", "sim"]),
    ],
)
def test_wrong_faults_are_refused(
    mode: Literal["thread", "process"], faults: dict[str, float], values: list[object]
) -> None:
    with raises(rd.InvalidArgument, *values):
        rd.Cluster.local(nodes=2, mode=mode, faults=faults)


def test_faults_are_of_shared_memory_and_the_simulator() -> None:
    with raises(rd.InvalidArgument, "verbs", "loss"):
        rd.Cluster.local(nodes=2, fabric="verbs", device="none0", faults={"loss": 0.1})
