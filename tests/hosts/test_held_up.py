"""Calls that last long, and messages that nobody reads: other calls do not wait for them."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from select import select
from typing import Any

import pytest

from pyrdma import children
from pyrdma.hosts import daemon, messages
from pyrdma.hosts.channel import CONTROL, Channel
from tests.errors import unnamed
from tests.hosts.waiting import soon


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
            if not select([self.channel.descriptor], [], [], 0.1)[0]:
                continue
            for _, content in self.channel.receive():
                message: Mapping[str, Any] = json.loads(content)
                if message.get("id") == number:
                    return message
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


def test_a_node_that_is_ended_before_its_turn_does_not_start(driver: Driver) -> None:
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


def test_a_daemon_ends_after_a_message_that_its_driver_does_not_read(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "_SEND_S", 0.2)
    driver.long.files = [["x" * 4000, 0, ""] for _ in range(250)]  # more than the socket holds
    driver.long.may_end.set()
    driver.ask(1, "list_results", after="")
    driver.thread.join(5)
    assert not driver.thread.is_alive(), "what it sends now follows half of a frame"


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
    monkeypatch.setattr(daemon, "ORPHAN_S", 1.0)
    is_held_up = threading.Event()

    def hold_up(**_: object) -> None:
        is_held_up.set()
        time.sleep(1.5)

    monkeypatch.setattr(driver.daemon, "_signal", hold_up)
    driver.ask(1, "signal", slot=1, signal=1)
    is_held_up.wait(10)
    driver.ask(2, "end", slot=2)
    assert driver.answer(2)["kind"] == "answer"
