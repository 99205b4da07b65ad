"""Clusters in virtual time and of real processes, through the public interface."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import workload
from pyrdma._native import native
from pyrdma.processes import ProcessCluster
from tests.errors import raises
from tests.harness.support import environment
from tests.kills import killed_in_run
from tests.leftovers import shared_memory

READS = workload.VerbsLoad(op="read", size=8, depth=4, mode="rate", record_latency=True)


def simulate(seed: int, nodes: int = 4) -> tuple[rd.Result, int]:
    load = workload.VerbsLoad(op="write", size=64, servers=0, pattern="random", qps=2)
    with rd.Cluster.sim(nodes=nodes, profile="cx5", seed=seed) as cluster:
        return cluster.run(load, duration_s=50e-6), cluster.fingerprint


def test_equal_seeds_give_equal_columns_and_events() -> None:
    first, events = simulate(3)
    second, same_events = simulate(3)
    assert first.samples == second.samples
    assert first.histograms == second.histograms
    assert events == same_events
    assert simulate(4)[1] != events


def test_a_simulated_result_adds_up(tmp_path: Path) -> None:
    with rd.Cluster.sim(nodes=3, profile="cx5", seed=1) as cluster:
        result = cluster.run(READS, duration_s=100e-6)
    frame = result.frame
    rates = frame[frame["metric"] == "rate"]["value"]
    assert len(rates) == 2  # two clients, one server
    assert result.value("rate") == pytest.approx(rates.sum())
    assert result.value("bandwidth") == pytest.approx(8 * result.value("rate"))
    latency = result.latency("read")
    assert 0 < latency.percentile(50) <= latency.percentile(99) <= latency.max
    # In a closed loop a request takes the window divided by the rate.
    each = 4 / (result.value("rate") / 2) * 1e9
    assert latency.mean == pytest.approx(each, rel=0.25)
    loaded = rd.Result.load(result.save(tmp_path / "saved"))
    assert loaded.samples == result.samples
    assert loaded.latency("read").percentile(99) == latency.percentile(99)


def test_overrides_change_what_is_simulated() -> None:
    def latency(**overrides: float) -> float:
        changes = {name.replace("__", "."): value for name, value in overrides.items()}
        load = workload.VerbsLoad(op="write", size=8, mode="latency")
        with rd.Cluster.sim(nodes=2, profile="cx5", seed=1, overrides=changes) as cluster:
            return cluster.run(load, duration_s=50e-6).latency("write").mean

    # A request and its response pass four cables: node, switch, node and back.
    assert latency(link__propagation_ns=1000) - latency(link__propagation_ns=0) == pytest.approx(
        4000, rel=0.05
    )


@pytest.mark.parametrize("lossless", [0, 1])
def test_an_oversubscribed_uplink_drops_or_pauses(lossless: int) -> None:
    """Ten nodes of one rack write to ten of another over one uplink of four times their rate."""
    load = workload.VerbsLoad(op="write", size=65536, depth=32, servers=10, pattern="pair")
    racks = {"topology.nodes_per_tor": 10, "topology.uplinks_per_tor": 1}
    with rd.Cluster.sim(
        nodes=20, profile="cx4", overrides={**racks, "link.lossless": lossless}
    ) as cluster:
        cluster.run(load, duration_s=1e-3)
        tiers = cluster.network_counters()
        at_nodes = [cluster.counters(node) for node in range(20)]
    assert set(tiers) == {"node", "uplink", "spine"}
    assert (tiers["uplink"]["dropped"] > 0) == (lossless == 0)
    assert (tiers["uplink"]["paused"] > 0) == (lossless == 1)
    assert sum(node["dropped"] for node in at_nodes) <= sum(t["dropped"] for t in tiers.values())
    assert any(node["paused"] > 0 for node in at_nodes) == (lossless == 1)


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (workload.VerbsLoad(depth=1, batch=2), ["batch", "depth"]),
        (workload.Custom("/nowhere/lib.so:x"), ["/nowhere/lib.so"]),
    ],
)
def test_a_wrong_parameter_is_named_with_its_bound(load: Any, words: list[object]) -> None:
    with (
        rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster,
        raises(rd.Error, *words),
    ):
        cluster.run(load, duration_s=1e-5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: workload.VerbsLoad(size=0), ["size", 0, 1]),
        (lambda: workload.VerbsLoad(size=True), ["size", True]),
        (lambda: workload.VerbsLoad(op="reed"), ["op", "reed", "read"]),  # type: ignore[arg-type]
        (lambda: workload.VerbsLoad(op=None), ["op", None, "read"]),  # type: ignore[arg-type]
    ],
)
def test_a_workload_refuses_a_wrong_parameter_when_it_is_made(
    make: Any, words: list[object]
) -> None:
    with raises(rd.InvalidArgument, *words):
        make()


@pytest.mark.parametrize(
    "kind", [workload.VerbsLoad, workload.ControlPath, workload.Memcpy, workload.Idle]
)
def test_workloads_have_the_native_parameters(kind: type[workload.Workload]) -> None:
    core: Any = native()
    known = {entry["name"] for entry in core.measure.workload_parameters(kind.native)}
    assert {field.name for field in dataclasses.fields(kind)} == known - {"duration_ns"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: rd.Cluster.sim(nodes=0, profile="cx5", seed=1),
        lambda: rd.Cluster.local(nodes=0, mode="thread"),
        lambda: rd.Cluster.local(nodes=100_000, mode="process"),
        lambda: rd.Cluster.local(nodes=2, mode="fiber"),  # type: ignore[arg-type]
        lambda: rd.Cluster.local(nodes=2, device="mlx5_0"),
        lambda: rd.Cluster.sim(nodes=2, profile="cx5", seed=1, overrides={"link.rate_gbps": 0}),
    ],
)
def test_wrong_clusters_are_refused(make: Any) -> None:
    with pytest.raises(rd.InvalidArgument):
        make()


def test_a_closed_cluster_says_so() -> None:
    cluster = rd.Cluster.sim(nodes=2, profile="cx5", seed=1)
    cluster.close()
    cluster.close()
    with pytest.raises(rd.InvalidArgument):
        cluster.run(READS, duration_s=1e-5)


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_nodes_of_this_machine_measure(mode: Any) -> None:
    before = shared_memory()
    with rd.Cluster.local(nodes=2, fabric="shm", mode=mode) as cluster:
        result = cluster.run(READS, duration_s=0.02)
        again = cluster.run(READS, duration_s=0.02)
    assert result.clock == "real"
    assert result.value("rate") > 1e4
    assert again.value("rate") > 1e4
    assert result.latency("read").count > 100
    assert shared_memory() == before


def test_a_killed_node_is_named_and_the_others_end() -> None:
    before = shared_memory()
    cluster = rd.Cluster.local(nodes=3, fabric="shm", mode="process")
    assert isinstance(cluster, ProcessCluster)
    processes = cluster.process_ids
    begin = time.monotonic()
    ended = raises(rd.Error, 2, processes[2], "SIGKILL")
    with killed_in_run(cluster, 2, after_s=0.5), ended:
        cluster.run(READS, duration_s=30)
    assert time.monotonic() - begin < 10
    assert not any(Path(f"/proc/{process}").exists() for process in processes)
    assert shared_memory() == before


def test_a_simulated_node_dies_in_the_midst_of_a_run() -> None:
    with rd.Cluster.sim(nodes=3, profile="spindle", seed=1) as cluster:
        cluster.kill(1, after_s=0.05)
        with raises(rd.Error, "node 1"):
            cluster.run(workload.VerbsLoad(op="write"), duration_s=0.1)
        assert cluster.now_ns > 100_000_000
        cluster.restart(1)
        assert cluster.run(workload.VerbsLoad(op="write"), duration_s=0.001).value("rate") > 0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_an_ended_controller(how: signal.Signals) -> None:
    before = shared_memory()
    code = (
        "import pyrdma as rd\n"
        "with rd.Cluster.local(nodes=2, fabric='shm', mode='process') as cluster:\n"
        "    print(*cluster.process_ids, flush=True)\n"
        "    cluster.run(rd.workload.VerbsLoad(op='read'), duration_s=60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        nodes = [int(number) for number in process.stdout.readline().split()]
        assert len(nodes) == 2
        time.sleep(0.5)
        os.killpg(process.pid, how)
        assert process.wait(timeout=10) != 0
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{node}").exists() for node in nodes):
        assert time.monotonic() < deadline, "a node outlived its controller"
        time.sleep(0.05)
    assert shared_memory() == before


def test_ctrl_c_stops_a_simulation() -> None:
    code = (
        "import pyrdma as rd\n"
        "with rd.Cluster.sim(nodes=2, profile='cx5', seed=1) as cluster:\n"
        "    print('running', flush=True)\n"
        "    cluster.run(rd.workload.VerbsLoad(op='read'), duration_s=1000)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=10)
    assert "KeyboardInterrupt" in complaints


def test_the_token_is_not_in_sight_of_other_users() -> None:
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        assert isinstance(cluster, ProcessCluster)
        token = cluster._session.token
        assert len(token) >= 16
        for process in cluster.process_ids:
            for file in ("cmdline", "environ"):
                assert token.encode() not in Path(f"/proc/{process}/{file}").read_bytes()


def test_the_native_module_loads_after_tables() -> None:
    # pyarrow loads libstdc++; the native module must not need its static thread-local storage then.
    code = "import pyarrow.parquet, pyrdma as rd; rd.Cluster.sim(nodes=2, profile='cx5').close()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
