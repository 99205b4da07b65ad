"""Hosts that do not answer, read or end: the other hosts, and other calls, do not wait for them."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from select import select
from typing import Any

import pytest

from pyrdma import children, errors
from pyrdma.hosts import channel, daemon, fleet, messages
from pyrdma.hosts import host as hosts
from pyrdma.hosts.channel import CONTROL, Channel
from pyrdma.hosts.cluster import _Session
from pyrdma.hosts.fleet import Fleet
from pyrdma.hosts.inventory import HostEntry, Inventory
from tests.errors import raises, unnamed
from tests.hosts.listening import listening
from tests.hosts.waiting import soon

LOCAL = "all: {vars: {ansible_connection: local}, hosts: {h0: {}, h1: {}}}"


# --- the driver -----------------------------------------------------------------------------------


@contextmanager
def silent_address() -> Iterator[str]:
    """Yield an address that takes no connection, as that of a host without power."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):  # its queue is full, so the kernel drops what comes
            other = stack.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_hosts_that_do_not_answer_are_tried_at_once_and_hold_no_other_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "REACH_S", 2.0)
    begins: list[float] = []
    ends: list[float] = []
    connect = channel.connect

    def note(*arguments: Any) -> Channel:
        begins.append(time.monotonic())
        try:
            return connect(*arguments)
        finally:
            ends.append(time.monotonic())

    monkeypatch.setattr(channel, "connect", note)
    token = tmp_path / "token"
    token.write_text("5a" * 32)
    token.chmod(0o600)
    with ExitStack() as stack:
        listen = partial(HostEntry, connection="listen", token_file=str(token))
        dead = [listen(f"dead{n}", listen=stack.enter_context(silent_address())) for n in range(4)]
        entries = [HostEntry("there", connection="local", command=""), *dead]
        there = stack.enter_context(Fleet(Inventory(tmp_path, "", entries), strict=False))
        assert [bool(host.lost) for host in there.hosts] == [False, *[True] * 4]
        assert all(unnamed(host.lost, host.entry.listen) == [] for host in there.hosts[1:])
        assert len(ends) == 4
        assert max(begins) < min(ends)
        assert there.hosts[0].call("clock")["parts"]


def test_a_host_that_does_not_read_holds_no_other_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "SILENT_S", 3.0)
    monkeypatch.setattr(hosts, "SEND_S", 20.0)
    monkeypatch.setattr(fleet, "_PING_S", 0.2)
    file = tmp_path / "hosts.yml"
    file.write_text(LOCAL)
    with Fleet.open(file) as there:
        stopped, other = there.hosts
        os.kill(stopped.hello["process"], signal.SIGSTOP)
        sender = threading.Thread(target=stopped.send, args=(1, bytes(1 << 20)))
        sender.start()  # it waits for the host, and has the channel's lock
        assert soon(lambda: bool(stopped.lost))
        assert unnamed(stopped.lost, "silent") == []
        heard = other._heard
        assert soon(lambda: other._heard > heard)
        assert other.call("clock")["parts"]
        assert sender.is_alive()
    sender.join(10)
    assert not sender.is_alive()


def test_a_host_that_was_not_asked_owes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "SILENT_S", 0.2)
    monkeypatch.setattr(fleet, "_PING_S", 60.0)  # as when this program was stopped
    file = tmp_path / "hosts.yml"
    file.write_text(LOCAL)
    with Fleet.open(file) as there:
        time.sleep(1.0)
        there.require()


def test_connections_that_are_made_while_the_fleet_closes_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, goes_on = threading.Event(), threading.Event()
    made: list[Channel] = []

    def connect(*_: object) -> Channel:
        begins.set()
        goes_on.wait(10)
        made.append(Channel(*os.pipe()))
        return made[-1]

    monkeypatch.setattr(channel, "connect", connect)
    monkeypatch.setattr("pyrdma.hosts.listening.read_token", lambda _: b"")
    monkeypatch.setattr(fleet, "CONNECT_S", 0.0)
    monkeypatch.setattr(fleet, "_TURN_S", 0.0)
    entry = HostEntry("late", connection="listen", listen="127.0.0.1:1", token_file="none")
    with Fleet(Inventory(tmp_path, "", [entry]), strict=False) as there:
        assert there.hosts[0].lost
        assert begins.wait(10)
    goes_on.set()
    assert soon(lambda: [one._open for one in made] == [set()])


class Interrupted(Future[Any]):
    """What Ctrl-C makes of the wait for an answer."""

    def result(self, timeout: float | None = None) -> Any:
        if timeout is not None:
            raise KeyboardInterrupt
        return super().result()


@pytest.mark.parametrize(
    ("asked", "kind", "named"),
    [
        (Future(), errors.Timeout, ["slow", "open_session"]),
        (Interrupted(), KeyboardInterrupt, []),
    ],
)
def test_a_session_that_is_opened_too_late_is_closed(
    asked: Future[Any],
    kind: type[BaseException],
    named: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts, "CALL_S", 0.1)
    told: list[tuple[str, dict[str, Any]]] = []
    host = hosts.Host(HostEntry("slow"))
    monkeypatch.setattr(host, "ask", lambda *_, **__: asked)
    monkeypatch.setattr(host, "tell", lambda name, **arguments: told.append((name, arguments)))
    with raises(kind, *named):
        _Session(host, "shm", 2, 1, "")
    assert told == []
    asked.set_result({"session": 7, "name": "x", "token": ""})
    assert told == [("close_session", {"session": 7})]


# --- the daemon -----------------------------------------------------------------------------------


class LongCall:
    """A call ``list_results`` that lasts until it may end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.files: list[Any] = []

    def list_results(self, after: str) -> Mapping[str, Any]:
        del after
        self.may_end.wait(20)
        return {"files": self.files}

    def close(self) -> None:
        pass


class Driver:
    """A driver of a daemon in this process."""

    def __init__(self) -> None:
        ours, theirs = (end.detach() for end in socket.socketpair())
        self.channel = Channel(ours, ours)
        self.messages: list[Mapping[str, Any]] = []
        self.daemon = daemon.Daemon(Channel(theirs, theirs))
        self.long = self.daemon._calls = LongCall()
        self.thread = threading.Thread(target=self.daemon.serve)
        self.thread.start()

    def ask(self, number: int, do: str, **arguments: Any) -> None:
        content = messages.encode("call", id=number, do=do, **{"with": arguments})
        self.channel.send(CONTROL, content, 5)

    def answer(self, number: int) -> Mapping[str, Any]:
        """Return the answer of a call; messages before it are dropped."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            while self.messages:
                message = self.messages.pop(0)
                if message.get("id") == number:
                    return message
            if select([self.channel.descriptor], [], [], 0.1)[0]:
                self.messages += [json.loads(content) for _, content in self.channel.receive()]
        raise AssertionError(f"no answer to call {number}")

    def close(self) -> None:
        self.long.may_end.set()
        self.channel.close()
        self.thread.join(10)


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.close()
    assert not made.thread.is_alive()


def test_a_signal_and_the_end_of_a_node_do_not_wait_for_a_long_call(driver: Driver) -> None:
    driver.ask(1, "start", slot=1, node=0)
    driver.ask(2, "start", slot=2, node=1)
    first, second = driver.answer(1)["value"], driver.answer(2)["value"]
    driver.ask(3, "list_results", after="")
    driver.ask(4, "signal", slot=1, signal=int(signal.SIGSTOP))
    assert driver.answer(4)["value"] is None
    assert soon(lambda: children.is_stopped(first))
    driver.ask(5, "end", slot=2)
    assert soon(lambda: children.state(second) in ("Z", ""))
    driver.long.may_end.set()
    assert driver.answer(5)["value"] is None
    assert children.state(second) == "", "the end is answered when the process is no more"


def test_a_node_that_is_ended_before_its_turn_does_not_start(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    monkeypatch.setattr(daemon, "NodeProcess", lambda node, **_: started.append(node))
    driver.ask(1, "list_results", after="")
    driver.ask(2, "start", slot=1, node=0)
    driver.ask(3, "end", slot=1)
    driver.ask(4, "end", slot=1)
    driver.long.may_end.set()
    assert driver.answer(2)["kind"] == "failed"
    assert driver.answer(4)["kind"] == "answer"
    driver.ask(5, "signal", slot=1, signal=int(signal.SIGCONT))
    assert driver.answer(5)["kind"] == "failed"
    assert driver.daemon._slots == driver.daemon._dropped == {}
    assert started == []


@pytest.mark.parametrize(
    ("do", "arguments"), [("list_results", {"after": ""}), ("signal", {"slot": 1, "signal": 1})]
)
def test_a_daemon_ends_after_a_message_that_its_driver_does_not_read(
    driver: Driver,
    do: str,
    arguments: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(daemon, "_SEND_S", 0.2)
    driver.long.files = [["x" * 4000, 0, ""] for _ in range(250)]  # more than the socket holds
    driver.long.may_end.set()
    monkeypatch.setattr(driver.daemon, "_signal", lambda **_: driver.long.files)
    driver.ask(1, do, **arguments)
    driver.thread.join(5)
    assert not driver.thread.is_alive(), "what it sends now follows half of a frame"
    assert unnamed(capsys.readouterr().err, "pyrdma daemon", "does not read") == []


def test_a_host_that_does_not_read_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "SEND_S", 0.0)
    ours, theirs = socket.socketpair()
    host = hosts.Host(HostEntry("full"))
    host.channel = Channel(ours.fileno(), ours.detach())
    host.send(1, bytes(channel.MOST_BYTES))
    assert unnamed(host.lost, "not read", "0 s") == []
    host.end()
    theirs.close()


def test_an_answer_that_is_too_long_fails_alone(driver: Driver) -> None:
    driver.long.files = [["x" * 4000, 0, ""] for _ in range(300)]
    driver.long.may_end.set()
    driver.ask(1, "list_results", after="")
    assert unnamed(driver.answer(1)["error"], "answer", 1 << 20) == []
    driver.ask(2, "start", slot=1, node=0)
    assert driver.answer(2)["kind"] == "answer"


def test_a_daemon_that_was_held_up_reads_before_it_leaves_its_driver(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_held_up, asked = threading.Event(), threading.Event()

    def hold_up(**_: object) -> None:
        is_held_up.set()
        asked.wait(10)
        monkeypatch.setattr(daemon, "ORPHAN_S", 0.0)  # as if that had taken longer

    monkeypatch.setattr(driver.daemon, "_signal", hold_up)
    driver.ask(1, "signal", slot=1, signal=1)
    is_held_up.wait(10)
    driver.ask(2, "end", slot=2)
    asked.set()
    assert driver.answer(2)["kind"] == "answer"


def test_a_daemon_that_has_too_many_open_files_for_a_while_goes_on(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("5a" * 32)
    token.chmod(0o600)
    with listening(token) as (process, endpoint):
        address, _, port = endpoint.partition(":")
        _, most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (12, most))
        with ExitStack() as stack:
            for _ in range(40):
                stranger = stack.enter_context(socket.socket())
                stranger.setblocking(False)
                stranger.connect_ex((address, int(port)))
            time.sleep(0.5)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (most, most))
        file = tmp_path / "listening.yml"
        file.write_text(
            f"all: {{hosts: {{unit: {{pyrdma_listen: '{endpoint}', pyrdma_token_file: {token}}}}}}}"
        )
        assert process.poll() is None
        with Fleet.open(file) as there:
            assert there.hosts[0].hello["process"] == process.pid
