"""Applications in processes of their own, attached to the daemon of a node."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyrdma as rd
from pyrdma.systems.krcore import Region, Service
from tests.errors import raises

OTHER = """
import sys
import pyrdma as rd

path, addr, key, size = sys.argv[1], *map(int, sys.argv[2:5])
app = rd.krcore.attach(path)
inbox = app.vqp(bind=9)
vqp = app.vqp()
vqp.connect(node=1, port=7)
region = rd.krcore.Region(app, addr, key, size)
vqp.write(region, b"from another process")
vqp.send(b"written")
[(reply, message)] = inbox.pop_msgs(timeout_s=20)
reply.send(message.upper())
inbox.pop_msgs(timeout_s=100)
"""

DAEMON = """
import sys, time
import pyrdma as rd

with rd.Cluster.local(nodes=2, fabric="shm", mode="thread") as cluster:
    service = rd.krcore.Service(cluster, arena_bytes=8 << 20)
    print(service.listen(node=0, folder=sys.argv[1]), flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with rd.Cluster.local(nodes=2, fabric="shm", mode="thread") as cluster:
        yield Service(cluster, arena_bytes=8 << 20, lease_s=0.01)


def until(done: object, seconds: float = 20.0) -> None:
    """Wait until a call returns true."""
    end = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_processes_use_the_service_of_a_node(service: Service, tmp_path: Path) -> None:
    owner = service.app(node=1)
    inbox = owner.vqp(bind=7)
    region = owner.reg_mr(4096)
    path = service.listen(node=0, folder=tmp_path / "door")
    words = [sys.executable, "-c", OTHER, path, str(region.addr), str(region.key), "4096"]
    with subprocess.Popen(words) as child:
        [(reply, message)] = inbox.pop_msgs(timeout_s=20)
        assert message == b"written"
        assert region.load(20) == b"from another process"
        assert service.attached(node=0) == 1
        back = owner.vqp()
        back.connect(node=0, port=9)
        back.send(b"hello")
        [(_, message)] = back.pop_msgs(timeout_s=20)
        assert message == b"HELLO"
        # A killed process leaves nothing: its port is free, and its memory after the lease.
        child.send_signal(signal.SIGKILL)
    until(lambda: service.attached(node=0) == 0)
    service.app(node=0).vqp(bind=9)
    until(lambda: service.counters(node=0)["ending_regions"] == 0)
    reply.close()


def test_an_application_learns_that_the_daemon_has_ended(service: Service, tmp_path: Path) -> None:
    path = service.listen(node=0, folder=tmp_path / "door")
    app = rd.krcore.attach(path)
    vqp = app.vqp()
    vqp.connect(node=1)
    with raises(rd.Unavailable, "does not learn its connection"):
        assert vqp.is_reliable
    service.hang_up(node=0)
    with raises(rd.Unavailable, "daemon of the node has ended"):
        app.vqp()
    with raises(rd.Unavailable, "no daemon listens"):
        rd.krcore.attach(path)
    app.close()
    with raises(rd.InvalidArgument, "attach()"):
        app.vqp()


def test_a_killed_daemon_is_a_typed_error_and_another_takes_its_place(tmp_path: Path) -> None:
    words = [sys.executable, "-c", DAEMON, str(tmp_path / "door")]
    for _ in range(2):  # the second finds the socket of the first
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as daemon:
            assert daemon.stdout is not None
            path = daemon.stdout.readline().strip()
            app = rd.krcore.attach(path)
            vqp = app.vqp()
            vqp.connect(node=1)
            region = app.reg_mr(64)
            region.store(b"x")
            daemon.send_signal(signal.SIGKILL)
        with raises(rd.Unavailable, "daemon of the node has ended"):
            vqp.send(b"x")
        assert region.load(1) == b"x", "its own memory stays"
        app.close()


def test_bad_use_names_the_fix(service: Service, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    with raises(rd.Unavailable, f"chmod 700 {folder}"):
        service.listen(node=0, folder=folder)
    with (
        rd.Cluster.sim(nodes=2, profile="krcore", seed=1) as cluster,
        raises(rd.InvalidArgument, "a simulated node; open a cluster on shm"),
    ):
        Service(cluster).listen(node=0, folder=tmp_path)
    app = rd.krcore.attach(service.listen(node=0, folder=tmp_path / "door"))
    vqp = app.vqp()
    with raises(rd.InvalidArgument, "not connected"):
        vqp.send(b"x")
    vqp.connect(node=1)
    with raises(rd.InvalidArgument, "port 1", "node 1", "bind=1"):
        for _ in range(100):  # the refusal comes after the first has ended
            vqp.send(b"x")
            time.sleep(0.001)
    other = app.vqp()
    other.connect(node=1)
    with raises(rd.InvalidArgument, "does not exist any more"):
        other.read(Region(app, 4096, 77, 64), 8)
