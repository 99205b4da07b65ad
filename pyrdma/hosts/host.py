"""The driver's side of one host: the connection to its daemon, its calls, and its nodes."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout  # another class in Python 3.10
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from pyrdma import _frames, children, errors
from pyrdma.errors import Error, HostLost, Timeout

from . import channel as channels
from . import messages
from ._node import RemoteNode
from .channel import CONTROL, Channel
from .clocks import Comparison
from .inventory import HostEntry

__all__ = ["CALL_S", "REACH_S", "SILENT_S", "Host"]

CALL_S = 30.0
"""Longest time that a daemon takes for a call."""

REACH_S = 10.0
"""Longest time for a daemon that listens to answer."""

SILENT_S = 10.0
"""A host that does not answer a ping for so long is lost."""

SEND_S = 10.0
"""Longest time that a host may leave its messages unread."""

_MOST_NOISE = 64 * 1024
"""Most bytes that a login shell may print before the daemon greets."""

_SSH = (
    *("ssh", "-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"),
    *("-o", "ConnectTimeout=10", "-o", "ClearAllForwardings=yes"),
)


class Host:
    """A host with a daemon. `pyrdma.hosts.fleet.Fleet` makes it and reads its channel.

    Attributes
    ----------
    entry
        The host in the inventory.
    hello
        The daemon's first message; empty before it came.
    lost
        Why the host is gone; empty while it is there.
    ready
        Done when the daemon has greeted.
    facts
        What the host is; empty until `Fleet.facts` has asked.
    compared
        How its clock compared with the first host's the last time.
    """

    def __init__(self, entry: HostEntry) -> None:
        self.entry = entry
        self.name = entry.name
        self.hello: Mapping[str, Any] = {}
        self.lost = ""
        self.greeted = False
        self._heard = self._asked = 0.0  # when it last sent something; when it did not answer first
        self.channel: Channel | None = None
        self._noise = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._calls: dict[int, tuple[str, Future[Any]]] = {}
        self._nodes: dict[int, RemoteNode] = {}
        self._numbers = itertools.count(1)
        # A cluster that is collected ends its nodes, perhaps in the midst of another call.
        self._lock = threading.RLock()
        self.ready: Future[None] = Future()
        self.compared: Comparison | None = None
        self.facts: dict[str, Any] = {}

    # --- the connection ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the daemon, or connect to the one that listens, which takes up to `REACH_S`.

        Raises
        ------
        Error
            The token cannot be read, or nobody listens.
        """
        if self.entry.connection == "listen":
            self._keep(self._connect())
            return
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - end() closes it
        process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # only the driver receives Ctrl-C
        )
        assert process.stdin is not None
        assert process.stdout is not None
        # The channel owns copies, so that Popen may close its own.
        reading, writing = (os.dup(s.fileno()) for s in (process.stdout, process.stdin))
        process.stdin.close()
        process.stdout.close()
        self._keep(Channel(reading, writing), process, stderr)

    def _keep(
        self,
        channel: Channel,
        process: subprocess.Popen[bytes] | None = None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        """Take a connection over, or end it if the host has been given up meanwhile."""
        with self._lock:
            self.channel, self._process, self._stderr = channel, process, stderr
            is_lost = bool(self.lost)
        if is_lost:
            self.end()

    def begin(self) -> None:
        """Begin to look after the connection, in the fleet's thread."""
        self._heard = time.monotonic()
        if self.entry.connection == "listen":
            self.greeted = True
            self.ping()  # the daemon waits for the proof of the token

    def _command(self) -> list[str]:
        entry = self.entry
        if entry.connection == "local" and not entry.command:
            return children.python("pyrdma._daemon")
        there = [entry.command or "pyrdma", "daemon", "--stdio"]
        if entry.connection == "local":
            return there
        command = [*_SSH, *entry.arguments]
        for option, value in (("-p", entry.port), ("-i", entry.key), ("-l", entry.user)):
            if value:
                command += [option, str(value)]
        return [*command, "--", entry.host, shlex.join(there)]

    def _connect(self) -> Channel:
        address, _, port = self.entry.listen.rpartition(":")
        from .listening import read_token

        token = read_token(Path(self.entry.token_file))
        try:
            return channels.connect(address.strip("[]"), int(port), token, REACH_S)
        except OSError as error:
            raise Error(
                f"nothing answers at {self.entry.listen}: {error.strerror or error}; start the "
                "unit there: systemctl start pyrdma-daemon"
            ) from None

    def ping(self) -> None:
        """Ask the host for a sign of life, without waiting."""
        if self._asked <= self._heard:
            self._asked = time.monotonic()
        self._post(messages.encode("ping"))

    def is_silent(self) -> bool:
        """Return whether the host has not answered for too long.

        The time begins with a ping: a host that this program has not asked, since it was stopped
        itself, owes no answer.
        """
        return self._asked > self._heard and time.monotonic() - self._asked > SILENT_S

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the frames that have come; see `Channel.receive`."""
        assert self.channel is not None
        found = self.channel.receive() if self.greeted else self._greeting(self.channel)
        self._heard = time.monotonic()
        return found

    def _greeting(self, channel: Channel) -> list[tuple[int, bytes]]:
        chunk = os.read(channel.descriptor, 1 << 16)
        if not chunk:
            raise EOFError
        self._noise += chunk
        before, found, rest = self._noise.partition(messages.GREETING)
        if not found:
            if len(before) > _MOST_NOISE:
                raise _frames.ProtocolError(f"it printed {len(before)} bytes and no greeting")
            return []
        self.greeted, self._noise = True, b""
        channel.feed(rest)
        return channel.take()

    def last_words(self) -> str:
        """Return the end of what the ssh client or the daemon printed."""
        if self._stderr is None:
            return ""
        said = children.end_of(self._stderr)
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return "; ".join(lines[-3:])[-600:]

    def lose(self, reason: str) -> None:
        """Note that the host is gone: its calls fail and its nodes end. Idempotent."""
        with self._lock:
            if self.lost:
                return
            self.lost = reason
            calls, self._calls = [future for _, future in self._calls.values()], {}
            nodes = list(self._nodes.values())
        for future in calls:
            with suppress(InvalidStateError):  # its caller has given it up
                future.set_exception(HostLost(self.complaint()))
        for node in nodes:
            node.finish("")
        with suppress(InvalidStateError):  # it has greeted
            self.ready.set_exception(HostLost(self.complaint()))

    def complaint(self) -> str:
        """Return the error text of a lost host."""
        return f"host {self.name}: {self.lost}"

    def end(self) -> None:
        """End the connection, with which the daemon and its nodes end. Idempotent."""
        if self.channel is not None:
            self.channel.close()
        if self._process is not None:
            self._process.kill()  # a stopped one cannot see that its pipe has ended
            self._process.wait()
        if self._stderr is not None:
            self._stderr.close()

    # --- messages ---------------------------------------------------------------------------------

    def ask(self, name: str, **arguments: Any) -> Future[Any]:
        """Call a function of the daemon; see `pyrdma.hosts.calls`."""
        future: Future[Any] = Future()
        number = next(self._numbers)
        content = messages.encode("call", id=number, do=name, **{"with": arguments})
        with self._lock:
            if self.lost:
                future.set_exception(HostLost(self.complaint()))
                return future
            self._calls[number] = (name, future)
        self.send(CONTROL, content)
        return future

    def tell(self, name: str, **arguments: Any) -> None:
        """Call a function of the daemon whose answer nobody needs, without waiting for anything."""
        number = next(self._numbers)
        self._post(messages.encode("call", id=number, do=name, **{"with": arguments}))

    def call(self, name: str, **arguments: Any) -> Any:
        """Call a function of the daemon and wait for its value.

        Raises
        ------
        HostLost
            The host is gone.
        Error
            The daemon's error, with the host's name.
        """
        return self.wait(self.ask(name, **arguments), name)

    def wait(self, future: Future[Any], name: str) -> Any:
        """Return the value of a call."""
        try:
            return future.result(CALL_S)
        except (TimeoutError, FutureTimeout, errors.Timeout) as error:
            if isinstance(error, Error):
                raise
            raise Timeout(
                f"host {self.name} has not answered '{name}' for {CALL_S:.0f} s; look whether it "
                "is overloaded"
            ) from None
        except Exception as error:
            if isinstance(error, Error) and not future.cancelled():
                raise
            raise Error(f"host {self.name}: {error}") from error

    def send(self, slot: int, content: bytes) -> None:
        """Send a frame; a host that does not take it is lost."""
        if self.channel is None or self.lost:
            return
        try:
            self.channel.send(slot, content, SEND_S)
        except Timeout:  # an OSError, too
            self.lose(f"it has not read its messages for {SEND_S:.0f} s")
        except OSError as error:
            self.lose(f"the connection ended: {error}")

    def _post(self, content: bytes) -> None:
        if self.channel is None or self.lost:
            return
        try:
            self.channel.post(CONTROL, content)
        except OSError as error:
            self.lose(f"the connection ended: {error}")

    def take(self, slot: int, content: bytes) -> None:
        """Take a frame of the daemon."""
        if slot != CONTROL:
            with self._lock:
                node = self._nodes.get(slot)
            if node is not None:
                node.feed(content)
            return
        message = messages.decode(content, from_driver=False)
        kind = message["kind"]
        if kind == "hello":
            self.hello = message
            with suppress(InvalidStateError):  # it was given up meanwhile
                self.ready.set_result(None)
        elif kind == "refused":
            self.lose(message["reason"])
        elif kind in ("answer", "failed"):
            with self._lock:
                name, future = self._calls.pop(message["id"], ("", None))
            if future is None or not future.set_running_or_notify_cancel():
                return
            if kind == "answer":
                try:
                    messages.check_answer(name, message["value"])
                except _frames.ProtocolError as error:
                    future.set_exception(Error(f"host {self.name}: {error}"))
                else:
                    future.set_result(message["value"])
                return
            made = getattr(errors, message["error_kind"], Error)
            if not (isinstance(made, type) and issubclass(made, Error)):
                made = Error
            future.set_exception(made(f"host {self.name}: {message['error']}"))
        elif kind in ("ended", "state"):
            with self._lock:
                node = self._nodes.get(message["slot"])
            if node is None:
                return
            if kind == "ended":
                node.finish(message["how"])
            else:
                node.last_state = message["state"]

    # --- nodes ------------------------------------------------------------------------------------

    def start_node(self, number: int) -> RemoteNode:
        """Start a node process."""
        node = RemoteNode(self, next(self._numbers), number)
        with self._lock:
            self._nodes[node.slot] = node
        node.begin()
        return node

    def forget(self, slot: int) -> None:
        """Take no more messages for a slot."""
        with self._lock:
            self._nodes.pop(slot, None)
