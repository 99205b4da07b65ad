"""A cluster of node processes on this machine: starting, talking to, and ending them.

Each node is ``python -m pyrdma._node``, spawned, never forked. Controller and node exchange lines
of JSON over the node's standard input and output; the run's secret goes through that pipe too.
A node ends when its pipe does, so none outlives a killed controller.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from . import errors
from .cluster import Cluster, Columns
from .doctor import native
from .errors import Error, Timeout
from .workload import Parameters

__all__ = ["ProcessCluster"]

START_S = 60.0
"""Longest time from starting the nodes until all have attached."""

GRACE_S = 2.0
"""How long the others may still report once a node has failed: their words tell why."""


class _Node:
    """One node process, its pipes, and the file that keeps what it says on standard error."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - end() closes it
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pyrdma._node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,  # Ctrl-C is the controller's
        )
        self._unread = b""

    def send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # its end is noticed on the other pipe
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    @property
    def descriptor(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def receive(self) -> dict[str, Any] | None:
        """Return a message if a whole one has come; call when the pipe can be read."""
        chunk = os.read(self.descriptor, 1 << 20)
        if not chunk:
            raise EOFError
        self._unread += chunk
        line, separator, rest = self._unread.partition(b"\n")
        if not separator:
            return None
        self._unread = rest
        message: dict[str, Any] = json.loads(line)
        return message

    def describe_end(self) -> str:
        """Say how the process ended, with the last that it said."""
        name = f"node {self.number} (process {self.process.pid})"
        try:
            code = self.process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            return f"{name} closed its pipe"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with status {code}"
        self.complaints.seek(0)
        said = self.complaints.read().decode(errors="replace").strip().splitlines()
        return f"{name} {how}" + (f": {said[-1]}" if said else "")

    def end(self) -> None:
        with suppress(OSError):
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.complaints):
            assert stream is not None
            with suppress(OSError):
                stream.close()


class ProcessCluster(Cluster):
    """Nodes as processes over shared memory; see `Cluster.local`."""

    fabric = "shm"

    def __init__(self, nodes: int, seed: int) -> None:
        super().__init__(nodes, seed)
        core: Any = native()
        self._session: Any = core.shm.Session(nodes=nodes, seed=seed)
        self._nodes: list[_Node] = []
        try:
            for number in range(nodes):
                self._nodes.append(_Node(number))
            for node in self._nodes:
                node.send(
                    {
                        "session": self._session.name,
                        "token": self._session.token,
                        "node": node.number,
                        "nodes": nodes,
                    }
                )
            self._collect(START_S, "starting the nodes")
        except BaseException:
            self.close()
            raise

    @property
    def process_ids(self) -> list[int]:
        """Process ids of the nodes, in order."""
        return [node.process.pid for node in self._nodes]

    def _run(self, name: str, parameters: Parameters, timeout_s: float) -> Columns:
        if not self._nodes:
            raise errors.InvalidArgument("the cluster is closed; make a new one")
        try:
            for node in self._nodes:
                node.send({"workload": name, "parameters": parameters})
            answers = self._collect(timeout_s, f"workload {name}")
        except BaseException:
            self.close()
            raise
        return _merge(answers)

    def _collect(self, timeout_s: float, what: str) -> list[dict[str, Any]]:
        """Wait for one message of every node; raise for the first that fails or ends."""
        deadline = time.monotonic() + timeout_s
        answers: dict[int, dict[str, Any]] = {}
        failures: list[tuple[int, Error]] = []
        with selectors.DefaultSelector() as selector:
            for node in self._nodes:
                selector.register(node.descriptor, selectors.EVENT_READ, node)
            while len(answers) < len(self._nodes) and selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    break
                for key, _ in ready:
                    node = key.data
                    try:
                        message = node.receive()
                    except EOFError:
                        selector.unregister(key.fd)
                        failures.append((0, Error(f"{what}: {node.describe_end()}")))
                    else:
                        if message is None:
                            continue
                        selector.unregister(key.fd)
                        if "error" in message:
                            failures.append((1, _rebuild(node.number, message)))
                        else:
                            answers[node.number] = message
                if failures:
                    deadline = min(deadline, time.monotonic() + GRACE_S)
        if failures:
            # A node that died is the cause; what its peers met is the consequence.
            raise min(failures, key=lambda failure: failure[0])[1]
        missing = [node.number for node in self._nodes if node.number not in answers]
        if missing:
            raise Timeout(
                f"{what}: node {', '.join(map(str, missing))} did not answer within "
                f"{timeout_s:.0f} s; give run() a longer timeout_s, or fewer nodes than cores"
            )
        return [answers[node.number] for node in self._nodes]

    def kill(self, node: int) -> None:
        """Kill a node's process; its peers get retry-exceeded and flushes."""
        self._nodes[self._check_node(node)].process.kill()

    def close(self) -> None:
        """End all node processes and the session. Idempotent."""
        nodes, self._nodes = self._nodes, []
        for node in nodes:
            node.end()
        self._session = None


def _rebuild(number: int, message: Mapping[str, Any]) -> Error:
    """Return the error that a node reported, of the same class."""
    kind = getattr(errors, str(message.get("kind", "")), Error)
    if not (isinstance(kind, type) and issubclass(kind, Error)):
        kind = Error
    return kind(f"node {number}: {message['error']}")


def _merge(answers: Sequence[Mapping[str, Any]]) -> Columns:
    """Append the nodes' columns to each other, in order."""
    names = ("metric", "unit", "value", "node", "thread")
    merged: dict[str, Any] = {name: [v for a in answers for v in a[name]] for name in names}
    found = [answer["histograms"] for answer in answers]
    merged["histograms"] = {
        "metric": [name for h in found for name in h["metric"]],
        "encoded": [base64.b64decode(text) for h in found for text in h["encoded"]],
    }
    return merged
