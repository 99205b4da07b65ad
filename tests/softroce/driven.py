"""Nodes of an inventory on two guests: guest 0 drives, guest 1 has a daemon that listens."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyrdma as rd
from pyrdma import check, errors, registry
from pyrdma.hosts.fleet import Fleet
from pyrdma.sweep import Sweep
from tests.errors import raises
from tests.softroce import node_programs
from tests.softroce.points import measured_once

__all__ = ["answer", "drive"]

PORT = 7471
SYSTEMS = Path(__file__).parent.parent / "systems"
PING_PONG = rd.workload.VerbsLoad(op="write", size=16, measure="pingpong", record_one_way=True)


def answer(
    address: str, share: Path, publish: Callable[..., None], wait: Callable[..., Any]
) -> None:
    """Hold the nodes of the driver; the daemon ends by a kill in the middle of a run."""
    token = share / "token"
    token.touch(0o600)
    token.write_text("5a" * 32)
    endpoint = f"{address}:{PORT}"
    words = [
        "-m",
        "pyrdma",
        "daemon",
        "--listen",
        endpoint,
        "--token-file",
        str(token),
        "--programs",
    ]
    with subprocess.Popen([sys.executable, *words]) as daemon:
        publish("listens", True)
        wait("kill the daemon")
        time.sleep(2)
        daemon.kill()
    publish("killed the daemon", True)
    wait("driven")
    left = subprocess.run(["pgrep", "-f", "pyrdma._node"], capture_output=True, text=True)
    assert left.stdout == "", "the nodes end with their daemon"


def drive(
    addresses: tuple[str, str],
    share: Path,
    publish: Callable[..., None],
    wait: Callable[..., Any],
    say: Callable[[str], None],
) -> None:
    """Measure on both guests; name a node, and then a daemon, that is killed."""
    inventory = share / "hosts.yml"
    inventory.write_text(f"""
all:
  vars: {{pyrdma_testbed: guests}}
  hosts:
    node-0: {{ansible_connection: local, pyrdma_address: {addresses[0]}}}
    node-1:
      pyrdma_listen: {addresses[1]}:{PORT}
      pyrdma_token_file: {share}/token
      pyrdma_address: {addresses[1]}
""")
    a_wrong_gid(inventory.with_name("wrong.yml"), say)
    wait("listens")
    with connected(inventory) as fleet:
        fleet.require_fabric("verbs")
        a_ping_pong(fleet, say)
        histories(fleet, say)
        a_sweep(fleet, share, say)
        a_killed_node(fleet, say)
        with rd.Cluster.remote(fleet, nodes=2) as cluster:
            publish("kill the daemon", True)
            with raises(errors.HostLost, "node-1"):
                cluster.run(PING_PONG, duration_s=60.0)
        say("a killed daemon was named")
    wait("killed the daemon")
    publish("driven", True)


def a_wrong_gid(inventory: Path, say: Callable[[str], None]) -> None:
    inventory.write_text(
        "all: {hosts: {node-0: {ansible_connection: local, pyrdma_device: 'rxe0:1:99'}}}"
    )
    with Fleet.open(inventory) as fleet, raises(errors.Unavailable, "node-0", "99") as caught:
        fleet.require_fabric("verbs")
    say(f"a wrong GID was named: {caught.value}")


def connected(inventory: Path) -> Fleet:
    """Connect once the other guest's daemon listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return Fleet.open(inventory)
        except errors.HostLost:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def a_ping_pong(fleet: Fleet, say: Callable[[str], None]) -> None:
    cluster: Any = rd.Cluster.remote(fleet, nodes=2)
    with cluster:
        result = cluster.run(PING_PONG, duration_s=0.5)
        assert result.value("ops") > 0
        bound = cluster.conditions.clock_bound_ns
        assert 0 < bound < 100_000_000
        assert "clocks corrected" in cluster.conditions.flags
        trips = result.value("ops")
        say(f"a ping-pong between hosts: {trips:.0f} round trips, clocks within {bound} ns")
        programs(cluster, say)


def programs(cluster: rd.Cluster, say: Callable[[str], None]) -> None:
    """Run node programs on both hosts, whose history is one."""
    functions = {0: node_programs.serve, 1: node_programs.call}
    result = cluster.program(functions, model="register", deadline_s=60)
    assert result.latency("call").count == node_programs.CALLS
    assert result.clock_bound_ns > 0
    verdict = check.check(result.history())
    assert verdict.ok, verdict.text
    assert verdict.operations == node_programs.CALLS
    middle = result.latency("call").percentile(50)
    say(f"programs of two hosts: median of calls {middle / 1e3:.0f} us")


def histories(fleet: Fleet, say: Callable[[str], None]) -> None:
    """Check what the systems' loads do to their stores, from the histories of both hosts."""
    paths = sorted(SYSTEMS.glob("*/two_hosts.py"))
    assert paths
    for path in paths:
        own = import_module(f"tests.systems.{path.parent.name}.two_hosts")
        with rd.Cluster.remote(fleet, nodes=2) as cluster:
            result = cluster.run(own.HISTORY)
        assert result.clock_bound_ns > 0
        verdict = check.check(result.history())
        assert verdict.ok, verdict.text
        assert verdict.operations >= own.HISTORY.iterations * own.CLIENTS, verdict
        say(
            f"{own.HISTORY.native}: {verdict.operations} operations of two hosts are linearizable, "
            f"with clocks within {result.clock_bound_ns} ns"
        )


def a_sweep(fleet: Fleet, share: Path, say: Callable[[str], None]) -> None:
    name = "fabric/latency"
    experiment = measured_once(name, registry.load)
    settings: dict[str, Any] = {"transport": "rc", "op": "write", "size": 64}
    points = list(experiment.points(fabric="verbs", settings=settings))
    outcome = Sweep(name, experiment, points, share / "points", fleet).run()
    assert (outcome.measured, outcome.failed, outcome.skipped) == (1, {}, {}), outcome
    assert list((share / "points/fabric/latency/verbs@guests/points").glob("*.jsonl"))
    again = Sweep(name, experiment, points, share / "points", fleet).run()
    assert (again.measured, again.reused) == (0, 1)
    say("a sweep of one point was measured once")


def a_killed_node(fleet: Fleet, say: Callable[[str], None]) -> None:
    cluster: Any = rd.Cluster.remote(fleet, nodes=2)
    with cluster:
        victim = cluster._nodes[1]
        threading.Timer(1.0, victim.signal, (signal.SIGKILL,)).start()
        began = time.monotonic()
        with raises(errors.NodeEnded, "node-1", "SIGKILL"):
            cluster.run(PING_PONG, duration_s=60.0)
    took = time.monotonic() - began
    say(f"a killed node was named after {took:.1f} s")
    assert took < 20
