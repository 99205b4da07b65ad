"""The controller's side of one node process: its start, its pipes, its end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import IO, Any

from . import _frames, children
from .errors import NodeEnded

__all__ = ["START_S", "ClusterProcesses", "NodeHandle", "NodeProcess", "StoppedNodes"]

START_S = 60.0
"""Longest time from the start of the nodes until all have attached."""

NOTICE_S, STOPPED_S = 2.0, 12.0
"""Time after which a node that another program stopped is reported, and ends the run."""

END_S = 8.0
"""Longest time from a process's end until the kernel has closed its RDMA device."""


_log = logging.getLogger("pyrdma")


class NodeHandle(ABC):
    """The controller's side of a node process, on this machine or on another one."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.killed = False
        self.paused = False  # by this program, which can let it continue

    @property
    @abstractmethod
    def process_id(self) -> int:
        """Process id on the node's machine."""

    @property
    @abstractmethod
    def descriptor(self) -> int:
        """A descriptor that is readable when `receive` has something to do."""

    @abstractmethod
    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; nothing happens if the process has ended."""

    @abstractmethod
    def receive(self) -> dict[str, Any] | None:
        """Return a message once a whole one has come; call it when `descriptor` is readable.

        Raises
        ------
        EOFError
            The process has ended, or its machine is lost.
        ProtocolError
            The node sent something else than a message.
        """

    @abstractmethod
    def end_error(self, what: str) -> Exception:
        """Return the error of a process that ended during `what`, with its last words."""

    @abstractmethod
    def state(self) -> str:
        """Return the letter of the process's state as in ``ps``."""

    @abstractmethod
    def is_up(self) -> bool:
        """Return whether the process has not ended."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the process and wait for its end."""

    @abstractmethod
    def discard(self) -> None:
        """Kill the process and do not wait; `end` follows."""

    @abstractmethod
    def end(self) -> None:
        """Kill the process and free what belongs to it."""

    @property
    def name(self) -> str:
        """The node's number and its process."""
        return f"node {self.number} (process {self.process_id})"

    @property
    def wake(self) -> str:
        """The command that lets a stopped process continue."""
        return f"kill -CONT {self.process_id}"


class NodeProcess(NodeHandle):
    """One node process, its pipes, and the file with its standard error.

    Without `programs` it refuses node programs, which are any Python code.
    """

    def __init__(self, number: int, *, programs: bool = True) -> None:
        super().__init__(number)
        self.stderr_file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - end() closes it
        self.process = subprocess.Popen(
            children.python("pyrdma._node"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr_file,
            start_new_session=True,  # only the controller receives Ctrl-C
            env=None if programs else {**os.environ, _frames.NO_PROGRAMS: "1"},
        )
        self._frames = _frames.Frames(_frames.FRAME_TO_CONTROLLER)

    @property
    def process_id(self) -> int:
        return self.process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the other pipe shows the node's end
            descriptor = self.process.stdin.fileno()
            _frames.send(descriptor, message, _frames.FRAME_TO_NODE, START_S)

    @property
    def descriptor(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def receive(self) -> dict[str, Any] | None:
        chunk = os.read(self.descriptor, 1 << 20)
        if not chunk:
            raise EOFError
        self._frames.feed(chunk)
        return self._frames.next()

    def describe_end(self) -> str:
        """Describe how the process ended, with its last line of standard error."""
        try:
            code = self.process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            return f"{self.name} closed its pipe"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with status {code}"
        said = children.end_of(self.stderr_file).strip().splitlines()
        return f"{self.name} {how}" + (f": {said[-1]}" if said else "")

    def end_error(self, what: str) -> Exception:
        return NodeEnded(f"{what}: {self.describe_end()}")

    def state(self) -> str:
        return children.state(self.process.pid)

    def is_up(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def discard(self) -> None:
        with suppress(OSError):
            self.process.kill()

    def end(self) -> None:
        with suppress(OSError):
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.stderr_file):
            assert stream is not None
            with suppress(OSError):
                stream.close()


class StoppedNodes:
    """Looks for stopped nodes among those that a run waits for."""

    def __init__(self, what: str, survives: bool) -> None:
        self._what = what
        self._end = "" if survives else f" within {STOPPED_S - NOTICE_S:.0f} s"
        self._since: dict[NodeHandle, float] = {}
        self._told: set[NodeHandle] = set()

    def look(self, waiting: Iterable[NodeHandle]) -> bool:
        """Return whether another program has stopped a node for so long that the run has to end.

        This program may stop nodes (`Cluster.stop`), for as long as it likes.
        """
        now = time.monotonic()
        stopped = [n for n in waiting if not n.paused and n.state() == "T"]
        self._since = {node: self._since.get(node, now) for node in stopped}
        self._told.intersection_update(stopped)
        for node in stopped:
            if now - self._since[node] >= NOTICE_S and node not in self._told:
                self._told.add(node)
                _log.warning(
                    "pyrdma: %s: another program has stopped %s, which the run waits for; let it "
                    "continue%s: %s",
                    *(self._what, node.name, self._end, node.wake),
                )
        return any(now - since >= STOPPED_S for since in self._since.values())


def describe_stopped(waiting: Iterable[NodeHandle]) -> str:
    """Say which nodes are stopped, and which only wait; an empty text if none is stopped."""
    said, others = [], []
    for node in waiting:
        state = node.state()
        if state == "t":
            said.append(f"a debugger holds {node.name}")
        elif state == "T":
            resume = f"resume({node.number}) or " if node.paused else ""
            cure = f"{resume}`{node.wake}`"
            said.append(f"{node.name} is stopped; in time, {cure} lets it continue")
        else:
            others.append(str(node.number))
    if said and others:
        said.append(f"node {', '.join(others)} only waited")
    return "; ".join(said)


class ClusterProcesses:
    """The processes and the session of a cluster, which end with it."""

    def __init__(self, cluster: object, session: Any) -> None:
        self.nodes: list[NodeHandle] = []
        self.ended: list[NodeHandle] = []  # a run may still use their pipes
        self.session = session
        self._owner = os.getpid()
        # A program may never close the cluster. Its processes then end when it is collected, or
        # when the program exits.
        self.end = weakref.finalize(cluster, self._end)

    def _end(self) -> None:
        if os.getpid() != self._owner:
            return  # a forked copy of this program, which exits
        nodes = self.nodes + self.ended
        self.nodes, self.ended = [], []
        for node in nodes:
            node.discard()
        for node in nodes:
            node.end()
        session, self.session = self.session, None
        if hasattr(session, "close"):  # it lies on another machine
            session.close()
