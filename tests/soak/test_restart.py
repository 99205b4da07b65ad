"""Node processes that are killed, restarted, stopped and resumed through the public interface."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import _node_process, workload
from pyrdma._native import native
from pyrdma.processes import ProcessCluster
from tests.errors import raises, unnamed

READS = workload.VerbsLoad(op="read", size=8, depth=4, mode="rate")
SOAK = workload.Soak(size=256, interval_ns=200_000)


@contextmanager
def processes(nodes: int) -> Iterator[ProcessCluster]:
    with rd.Cluster.local(nodes=nodes, fabric="shm", mode="process") as cluster:
        assert isinstance(cluster, ProcessCluster)
        yield cluster


@contextmanager
def later(seconds: float, do: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Call `do` in another thread; the list has its exceptions after the block."""
    raised: list[BaseException] = []

    def call() -> None:
        time.sleep(seconds)
        try:
            do()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    yield raised
    thread.join()
    assert not raised


def test_a_restarted_node_measures_with_the_others() -> None:
    with processes(3) as cluster:
        assert cluster.run(READS, duration_s=0.02).value("rate") > 0
        old = cluster.process_ids[1]
        cluster.kill(1)
        with raises(rd.Error, 1, "restart()"):
            cluster.run(READS, duration_s=0.02)
        cluster.restart(1)
        assert cluster.incarnation(1) == 1
        assert cluster.process_ids[1] != old
        assert not Path(f"/proc/{old}").exists()
        assert cluster.run(READS, duration_s=0.02).value("rate") > 0
        cluster.restart(1)  # also while the node runs
        assert cluster.incarnation(1) == 2
        assert cluster.run(READS, duration_s=0.02).value("rate") > 0


def test_a_soak_goes_on_without_a_killed_node_and_meets_the_restarted_one() -> None:
    killed: list[int] = []

    def hurt() -> None:
        killed.append(cluster.now_ns)
        cluster.kill(2)
        cluster.restart(2)

    with processes(3) as cluster:
        with later(1.0, hurt):
            result = cluster.run(SOAK, duration_s=4)
        assert cluster.incarnation(2) == 1
    assert result.value("wrong") == 0
    values = {(s.metric, s.node): s.value for s in result.samples}
    for peer in (0, 1):
        assert values[("lost", peer)] == 1
        assert values[("met", peer)] == 3  # each other twice, once again
        noticed = values[(f"lost/2.0/{peer}.0", 0)]
        assert killed[0] <= noticed <= killed[0] + 1e9
    assert values[("met", 2)] == 2
    assert values[("rounds", 2)] > 10


def test_a_stopped_node_is_slow_and_not_dead() -> None:
    with processes(3) as cluster:
        with later(0.5, lambda: cluster.pause(1, 0.5)):
            result = cluster.run(SOAK, duration_s=2)
        assert cluster.run(READS, duration_s=0.02).value("rate") > 0
    assert result.value("wrong") == 0
    assert {s.value for s in result.samples if s.metric == "lost"} == {0}
    assert min(s.value for s in result.samples if s.metric == "rounds") > 10


def test_a_stopped_node_fails_a_run_in_time_and_is_ended() -> None:
    with processes(2) as cluster:
        cluster.stop(1)
        process = cluster.process_ids[1]
        with raises(
            rd.Timeout, f"node 1 (process {process})", "resume(1)", f"kill -CONT {process}"
        ):
            cluster.run(READS, duration_s=0.02, timeout_s=1)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_node_process, "NOTICE_S", 0.1)
    monkeypatch.setattr(_node_process, "STOPPED_S", 0.6)
    monkeypatch.setattr("pyrdma.processes._STOPS_S", 0.05)


@pytest.mark.usefixtures("hasty")
def test_a_node_that_another_program_stops_is_named_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with processes(3) as cluster:
        process = cluster.process_ids[1]
        begin = time.monotonic()
        with (
            later(0.2, lambda: os.kill(process, signal.SIGSTOP)),
            raises(rd.Timeout, f"node 1 (process {process})", f"kill -CONT {process}") as caught,
        ):
            cluster.run(READS, duration_s=0.5)
        assert time.monotonic() - begin < 20, "a run would last 61 s"
        assert "resume" not in str(caught.value)
        assert unnamed(caught.value, "node 0, 2") == []
    assert not Path(f"/proc/{process}").exists()
    [notice] = caplog.messages
    assert unnamed(notice, f"node 1 (process {process})", f"kill -CONT {process}") == []


@pytest.mark.usefixtures("hasty")
def test_a_run_waits_for_nodes_that_are_stopped_on_purpose(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with processes(2) as cluster:
        with later(0.1, lambda: cluster.pause(1, 1.2)):
            assert cluster.run(READS, duration_s=0.3).value("rate") > 0
        assert caplog.messages == []
        # A soak goes on without a node, whoever has stopped it.
        process = cluster.process_ids[1]
        with (
            later(0.1, lambda: os.kill(process, signal.SIGSTOP)),
            later(1.2, lambda: os.kill(process, signal.SIGCONT)),
        ):
            assert cluster.run(SOAK, duration_s=1.5).value("wrong") == 0
        assert len(caplog.messages) == 1


def test_the_failure_of_a_peer_names_the_stopped_node() -> None:
    with processes(2) as cluster:
        cluster.stop(1)
        with raises(rd.Error, 0, "/nowhere/lib.so", f"node 1 (process {cluster.process_ids[1]})"):
            cluster.run(workload.Custom("/nowhere/lib.so:x"))


@pytest.mark.parametrize("what", ["kill", "restart", "stop", "resume"])
def test_what_is_not_there_cannot_be_hurt(what: str) -> None:
    with processes(2) as cluster:
        with raises(rd.InvalidArgument, 2, 1):
            getattr(cluster, what)(2)
        if what in ("stop", "resume"):
            cluster.kill(1)
            with raises(rd.Error, 1):
                getattr(cluster, what)(1)
    with pytest.raises(rd.InvalidArgument):
        getattr(cluster, what)(0)


def test_the_soak_has_the_native_parameters() -> None:
    core: Any = native()
    known = {entry["name"] for entry in core.measure.workload_parameters("soak")}
    assert {field.name for field in fields(workload.Soak)} == known - {"duration_ns"}


def test_threads_of_one_process_live_together() -> None:
    with rd.Cluster.local(nodes=2, mode="thread") as cluster:
        with raises(rd.Unavailable, 1, "mode='process'"):
            cluster.restart(1)
        with raises(rd.Unavailable, 1, "mode='process'"):
            cluster.pause(1, 0.1)


def test_the_soak_is_clean_in_every_world() -> None:
    for cluster in (
        rd.Cluster.sim(nodes=4, profile="cx5", seed=1),
        rd.Cluster.local(nodes=3, fabric="shm", mode="thread"),
    ):
        with cluster:
            result = cluster.run(
                workload.Soak(interval_ns=10_000),
                duration_s=0.05 if cluster.fabric == "sim" else 0.2,
            )
        assert result.value("wrong") == 0
        assert result.value("lost") == 0
        assert min(s.value for s in result.samples if s.metric == "rounds") > 10
