"""The driver's side of a node process on a host."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyrdma import _frames
from pyrdma._node_process import END_S, NodeHandle
from pyrdma.errors import HostLost, NodeEnded

if TYPE_CHECKING:
    from .host import Host

__all__ = ["RemoteNode"]


class RemoteNode(NodeHandle):
    """A node process on a host. `descriptor` counts what has come for it."""

    def __init__(self, host: Host, slot: int, number: int) -> None:
        super().__init__(number)
        self.host = host
        self.slot = slot
        self.last_state = ""
        self._how: str | None = None  # how it ended
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self._frames = _frames.Frames(_frames.FRAME_TO_CONTROLLER)
        self._chunks: deque[bytes] = deque()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._closed = False
        self._discarded = False
        self._started: Future[Any] = Future()

    def begin(self) -> None:
        """Ask the daemon for the process."""
        self._started = self.host.ask("start", slot=self.slot, node=self.number)
        self._started.add_done_callback(self._check)

    def _check(self, future: Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self.finish(f"node {self.number} could not be started: {error}")

    @property
    def process_id(self) -> int:
        with suppress(Exception):
            return int(self._started.result(5))
        return 0

    @property
    def descriptor(self) -> int:
        return self._event

    def send(self, message: Mapping[str, Any]) -> None:
        if str(message["kind"]).startswith("attach"):
            seal = self.host.channel.seal if self.host.channel is not None else None
            if seal is not None:  # the daemon passes the token on in clear, over the node's pipe
                message = {**message, "token": seal.hide(message["token"], f"slot {self.slot}")}
            self.host.ask("attach", slot=self.slot, message=dict(message)).add_done_callback(
                self._check
            )
            return
        self.host.send(self.slot, _frames.encode(message, _frames.FRAME_TO_NODE))

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the node's pipe, in the fleet's thread."""
        self._chunks.append(chunk)
        self._notify()

    def finish(self, how: str) -> None:
        """Note that the process has ended, in the fleet's thread. Idempotent."""
        if self._how is None:
            self._how = how
            self._over.set()
            self._notify()

    def _notify(self) -> None:
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._event, 1)

    def receive(self) -> dict[str, Any] | None:
        if self._chunks:
            self._frames.feed(self._chunks.popleft())
        elif self._how is not None:
            raise EOFError
        with suppress(BlockingIOError):
            os.eventfd_read(self._event)
        return self._frames.next()

    def end_error(self, what: str) -> Exception:
        if self.host.lost:
            return HostLost(f"{what}: {self.host.complaint()}")
        return NodeEnded(f"{what}: host {self.host.name}: {self._how or self.name}")

    @property
    def name(self) -> str:
        return f"node {self.number} (process {self.process_id} on {self.host.name})"

    @property
    def wake(self) -> str:
        return f"kill -CONT {self.process_id} on {self.host.name}"

    def state(self) -> str:
        return self.last_state

    def is_up(self) -> bool:
        return self._how is None

    def signal(self, number: signal.Signals) -> None:
        self.host.call("signal", slot=self.slot, signal=int(number))

    def kill(self) -> None:
        if self._how is None and not self.host.lost:
            self.signal(signal.SIGKILL)
            self._over.wait(END_S)

    def discard(self) -> None:
        if not self._discarded:
            self._discarded = True
            self.host.tell("end", slot=self.slot)

    def end(self) -> None:
        self.host.forget(self.slot)
        self.discard()
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._event)
