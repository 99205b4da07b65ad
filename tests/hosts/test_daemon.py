"""Daemons of this machine: clusters on them, their ends, and who may use them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import children, errors, sources
from pyrdma.hosts import channel, daemon, fleet, host, messages
from pyrdma.hosts.fleet import Fleet
from pyrdma.hosts.listening import listen, read_token
from tests.errors import raises
from tests.harness.support import environment
from tests.hosts.listening import listening
from tests.hosts.waiting import soon
from tests.programs.support import client, echo

LOAD = rd.workload.VerbsLoad(op="write", size=64, depth=16)
LOCAL = "all: {vars: {ansible_connection: local}, hosts: {h0: {pyrdma_slots: 4}}}"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    file = tmp_path / "hosts.yml"
    file.write_text(LOCAL)
    return file


@contextmanager
def cluster(inventory: Path, nodes: int = 2, **options: Any) -> Iterator[tuple[Any, Fleet]]:
    with Fleet.open(inventory) as there, rd.Cluster.remote(there, nodes, "shm", **options) as made:
        yield made, there


def is_alive(pid: int) -> bool:
    return children.state(pid) not in ("", "Z")


def test_a_workload_runs_on_a_host(inventory: Path) -> None:
    with cluster(inventory) as (made, there):
        result = made.run(LOAD, duration_s=0.02)
        assert result.value("rate") > 0
        assert made.now_ns > 0
        assert made.incarnation(0) == 0
        ids = [*made.process_ids, there.hosts[0].hello["process"]]
        assert all(map(is_alive, ids))
    assert soon(lambda: not any(map(is_alive, ids)))


def test_a_cluster_from_an_inventory_ends_its_daemons(inventory: Path) -> None:
    made: Any = rd.Cluster.remote(inventory, nodes=2, fabric="shm")
    with made:
        ids = made.process_ids
        assert made.run(LOAD, duration_s=0.02).value("rate") > 0
    assert soon(lambda: not any(map(is_alive, ids)))


def test_faults_kills_and_restarts_work_as_on_this_machine(inventory: Path) -> None:
    with cluster(inventory, faults={"loss": 0.5}) as (made, _):
        made.run(rd.workload.VerbsLoad(op="send", transport="ud", depth=4), duration_s=0.02)
        assert made.fault_counters()["loss"][0] > 0
    with cluster(inventory) as (made, _):
        [_, victim] = made.process_ids
        made.kill(1)
        assert not is_alive(victim)
        with raises(errors.Error, 1):
            made.run(LOAD, duration_s=0.01)
    with cluster(inventory) as (made, _):
        made.kill(1)
        made.restart(1)
        assert made.incarnation(1) == 1
        assert made.run(LOAD, duration_s=0.02).value("rate") > 0


def test_a_node_that_dies_is_named(inventory: Path) -> None:
    with cluster(inventory) as (made, _):
        victim = made.process_ids[1]
        threading.Timer(0.3, os.kill, (victim, signal.SIGKILL)).start()
        with raises(errors.NodeEnded, "h0", "node 1", victim, "SIGKILL"):
            made.run(LOAD, duration_s=20)


def test_a_stopped_node_is_named(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrdma._node_process.NOTICE_S", 0.1)
    monkeypatch.setattr("pyrdma._node_process.STOPPED_S", 1.0)
    with cluster(inventory) as (made, _):
        victim = made.process_ids[1]
        os.kill(victim, signal.SIGSTOP)
        with raises(errors.Timeout, "node 1", f"kill -CONT {victim}", "h0"):
            made.run(LOAD, duration_s=0.1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_that_dies_takes_its_nodes_along(inventory: Path, number: int) -> None:
    with cluster(inventory) as (made, there):
        ids = made.process_ids
        threading.Timer(0.3, os.kill, (there.hosts[0].hello["process"], number)).start()
        with raises(errors.HostLost, "h0"):
            made.run(LOAD, duration_s=20)
        assert soon(lambda: not any(map(is_alive, ids)))
        with raises(errors.HostLost, "h0"):
            rd.Cluster.remote(there, nodes=2, fabric="shm")


def test_a_daemon_that_falls_silent_is_lost(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "SILENT_S", 1.0)
    monkeypatch.setattr(fleet, "_PING_S", 0.2)
    with cluster(inventory) as (made, there):
        pid = there.hosts[0].hello["process"]
        threading.Timer(0.3, os.kill, (pid, signal.SIGSTOP)).start()
        began = time.monotonic()
        with raises(errors.HostLost, "h0", "silent"):
            made.run(LOAD, duration_s=20)
        assert time.monotonic() - began < 5
        ids = made.process_ids
    assert soon(lambda: not is_alive(pid)), "a stopped process cannot see that its pipe ended"
    assert soon(lambda: not any(map(is_alive, ids)))


DRIVER = """
import sys
import pyrdma as rd
from pyrdma.hosts.fleet import Fleet
with Fleet.open(sys.argv[1]) as fleet, rd.Cluster.remote(fleet, 2, "shm") as cluster:
    print(fleet.hosts[0].hello["process"], *cluster.process_ids, flush=True)
    cluster.run(rd.workload.VerbsLoad(op="write"), duration_s=60)
"""


def test_a_killed_driver_leaves_nothing(inventory: Path, tmp_path: Path) -> None:
    program = tmp_path / "driver.py"
    program.write_text(DRIVER)
    with subprocess.Popen(
        [sys.executable, program, inventory],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as driver:
        assert driver.stdout is not None
        ids = [int(word) for word in driver.stdout.readline().split()]
        assert len(ids) == 3
        assert all(map(is_alive, ids))
        for pid in ids:
            for file in ("cmdline", "environ"):
                text = Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace")
                assert not re.search(r"[0-9a-f]{64}", text), f"a secret in the {file} of {pid}"
        driver.kill()
    assert soon(lambda: not any(map(is_alive, ids)))


def test_a_driver_that_falls_silent_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "ORPHAN_S", 0.5)
    ours, theirs = socket.socketpair()
    served = daemon.Daemon(channel.Channel(theirs.detach(), os.dup(ours.fileno())))
    thread = threading.Thread(target=served.serve)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    ours.close()


def test_hosts_with_other_code_are_refused(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "source_digest", lambda: "0123")
    with raises(errors.HostLost, "h0", "0123", sources.source_digest(), "site.yml"):
        Fleet.open(inventory)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'pyrdma: command not found' >&2; exit 127", ["a", "not found", "site.yml"]),
        ("echo Permission denied >&2; exit 255", ["a", "ansible_user"]),
        ("echo Host key verification failed. >&2; exit 255", ["a", "ssh a"]),
        ("head -c 200000 /dev/zero; sleep 9", ["a", "no greeting"]),
        ("printf 'pyrdma daemon 1\\n\\377\\377\\377\\377\\0\\0\\0\\0'; sleep 9", ["a", 4294967295]),
        ("printf 'pyrdma daemon 1\\n\\0\\0\\0\\2\\0\\0\\0\\0{}'; sleep 9", ["a", "unknown kind"]),
        ("exit 3", ["a", "no daemon greeted"]),
    ],
)
def test_what_went_wrong_is_said_with_its_remedy(
    tmp_path: Path, script: str, said: list[object]
) -> None:
    program = tmp_path / "pyrdma"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    file = tmp_path / "hosts.yml"
    file.write_text(
        f"all: {{hosts: {{a: {{ansible_connection: local, pyrdma_command: {program}}}}}}}"
    )
    with raises(errors.HostLost, *said):
        Fleet.open(file)


def test_the_noise_of_a_login_shell_is_skipped(tmp_path: Path) -> None:
    program = tmp_path / "pyrdma"
    command = " ".join(children.python("pyrdma._daemon"))
    program.write_text(f"#!/bin/sh\necho Welcome to node-0\nexec {command}\n")
    program.chmod(0o755)
    file = tmp_path / "hosts.yml"
    file.write_text(
        f"all: {{hosts: {{a: {{ansible_connection: local, pyrdma_command: {program}}}}}}}"
    )
    with Fleet.open(file) as there:
        assert there.hosts[0].call("clock")["parts"]


def test_shm_does_not_span_hosts_and_slots_are_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text(
        "all: {vars: {ansible_connection: local}, hosts: {a: {}, b: {pyrdma_slots: 3}}}"
    )
    with Fleet.open(file) as there:
        with raises(errors.InvalidArgument, "shm", 2):
            rd.Cluster.remote(there, nodes=2, fabric="shm")
        with raises(errors.Unavailable, 5, 2, 4, "pyrdma_slots"):
            rd.Cluster.remote(there, nodes=5)
        assert [h.name for h in there.place(4)] == ["a", "b", "b", "b"]
        with raises(errors.InvalidArgument, "a", "pyrdma_address"):
            rd.Cluster.remote(there, nodes=2)
        with raises(errors.InvalidArgument, "sim"):
            rd.Cluster.remote(there, nodes=2, fabric="sim")


# --- a daemon that listens ------------------------------------------------------------------------


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("5a" * 32)
    file.chmod(0o600)
    return file


@pytest.fixture(params=[["--programs"]])
def listens(token_file: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    with listening(token_file, *request.param) as (_, endpoint):
        yield endpoint


def listening_inventory(tmp_path: Path, endpoint: str, token_file: Path) -> Path:
    file = tmp_path / "listening.yml"
    variables = f"{{pyrdma_listen: '{endpoint}', pyrdma_token_file: {token_file}, pyrdma_slots: 2}}"
    file.write_text(f"all: {{hosts: {{unit: {variables}}}}}")
    return file


def test_a_listening_daemon_serves_one_driver_after_another(
    tmp_path: Path, listens: str, token_file: Path
) -> None:
    file = listening_inventory(tmp_path, listens, token_file)
    for _ in range(2):
        with cluster(file) as (made, _):
            assert made.run(LOAD, duration_s=0.02).value("rate") > 0
            with raises(errors.HostLost, "unit", "another driver"):
                Fleet.open(file)
            result = made.program({0: echo, 1: client}, deadline_s=20)
            assert result.latency("rpc").count == 100


@pytest.mark.parametrize("listens", [[]], indirect=True)
def test_a_listening_daemon_takes_programs_only_if_it_is_told(
    tmp_path: Path, listens: str, token_file: Path
) -> None:
    file = listening_inventory(tmp_path, listens, token_file)
    with cluster(file) as (made, _):
        assert made.run(LOAD, duration_s=0.02).value("rate") > 0
        with raises(errors.Unavailable, "--programs"):
            made.program({0: echo, 1: client}, deadline_s=20)
    with cluster(file) as (made, _), raises(errors.Unavailable, "--programs", "/tmp/x.so:load"):
        made.run(rd.workload.Custom("/tmp/x.so:load"), duration_s=0.02)


def test_a_wrong_token_is_refused(tmp_path: Path, listens: str, token_file: Path) -> None:
    other = tmp_path / "other"
    other.write_text("00" * 32)
    other.chmod(0o600)
    with raises(errors.HostLost, "unit"):
        Fleet.open(listening_inventory(tmp_path, listens, other))
    # A stranger who only connects keeps nobody away.
    address, _, port = listens.partition(":")
    file = listening_inventory(tmp_path, listens, token_file)
    with socket.create_connection((address, int(port))), cluster(file) as (made, _):
        assert made.process_ids


def test_the_token_of_a_run_is_hidden_on_the_wire(
    tmp_path: Path, listens: str, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = bytearray()
    put, receive = channel.Channel._put, channel.Channel.receive

    def noted_put(self: channel.Channel, data: bytes, deadline: float) -> None:
        seen.extend(data)
        put(self, data, deadline)

    def noted_receive(self: channel.Channel) -> list[tuple[int, bytes]]:
        found = receive(self)
        for _, content in found:
            seen.extend(content)
        return found

    monkeypatch.setattr(channel.Channel, "_put", noted_put)
    monkeypatch.setattr(channel.Channel, "receive", noted_receive)
    with cluster(listening_inventory(tmp_path, listens, token_file)) as (made, _):
        secret = made._session.token
    assert len(secret) == 64
    assert b'"attach"' in seen
    assert secret.encode() not in seen
    assert b"5a" * 32 not in seen


def test_token_files_and_endpoints_are_checked(tmp_path: Path, token_file: Path) -> None:
    with raises(errors.InvalidArgument, tmp_path / "none", "umask 077"):
        read_token(tmp_path / "none")
    for endpoint in ("0.0.0.0:1", ":1", "[::]:7471", "[0:0::0]:7471", "localhost:1", "127.0.0.1"):
        with raises(errors.InvalidArgument, "127.0.0.1"):
            listen(endpoint, token_file)
    token_file.chmod(0o640)
    with raises(errors.InvalidArgument, token_file):
        read_token(token_file)
    token_file.chmod(0o600)
    token_file.write_text("abc")
    with raises(errors.InvalidArgument, token_file, 64):
        read_token(token_file)


def test_every_call_has_a_function() -> None:
    from pyrdma.hosts.calls import Calls

    own = {"start", "attach", "signal", "end"}
    assert own == messages.CALLS.keys() - set(dir(Calls))
