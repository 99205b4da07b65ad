"""A cluster of node processes on this machine: start them, exchange messages, end them.

Each node runs `pyrdma._node`, spawned, never forked. Controller and node exchange bounded
frames of JSON (`pyrdma._frames`) over the node's standard input and output, which no other process
has. The run's secret also goes through that pipe, never over a command line or environment. A node
ends when its pipe closes, so that no node outlives a killed controller.
"""

from __future__ import annotations

import base64
import selectors
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import _frames, errors
from ._native import native
from ._node_process import (
    START_S,
    ClusterProcesses,
    NodeHandle,
    NodeProcess,
    StoppedNodes,
    describe_stopped,
)
from ._program import address_of
from ._workload import Parameters, Workload
from .arguments import Duration, Seconds, checked
from .cluster_base import ClusterBase, Columns
from .errors import Error, InvalidArgument, Timeout
from .result import Result

__all__ = ["ProcessCluster"]

GRACE_S = 2.0
"""Time for further reports after a node has failed: they may name the cause."""

_LOOK_S = 0.1
"""Period of the search for nodes restarted during a run."""

_STOPS_S = 0.5
"""Period of the search for stopped nodes."""


class ProcessCluster(ClusterBase):
    """Nodes as processes over shared memory; see `Cluster.local`.

    Another thread may call `kill`, `restart`, `stop` and `resume` while a workload runs. A
    workload that tolerates killed nodes (`pyrdma.workload.Soak`) continues, and a restarted node
    then takes part again. Any other workload ends with an `Error` that names the node.
    """

    fabric = "shm"

    def __init__(self, nodes: int, seed: int, faults: Mapping[str, float] | None = None) -> None:
        super().__init__(nodes, seed)
        self._faults = {name: float(value) for name, value in (faults or {}).items()}
        self._held = ClusterProcesses(self, self._new_session())
        self._lock = threading.RLock()
        self._runs = 0
        self._survives = False
        self._running: Mapping[str, Any] | None = None
        try:
            for number in range(nodes):
                self._nodes.append(self._start(number))
            for node in self._nodes:
                self._attach(node)
            self._collect(START_S, "starting the nodes", 0)
        except BaseException:
            self.close()
            raise

    @property
    def _nodes(self) -> list[NodeHandle]:
        return self._held.nodes

    @property
    def _session(self) -> Any:
        return self._held.session

    def _kind(self) -> Mapping[str, Any]:
        """Return the parts of the first message to a node that all nodes share."""
        if self._faults:
            return {"kind": "attach_faulty", "faults": self._faults}
        return {"kind": "attach"}

    def _new_session(self) -> Any:
        core: Any = native()
        return core.shm.Session(nodes=self.nodes, seed=self.seed)

    def _start(self, number: int) -> NodeHandle:
        return NodeProcess(number)

    def _attach(self, node: NodeHandle) -> None:
        node.send(
            {
                **self._kind(),
                "session": self._session.name,
                "token": self._session.token,
                "node": node.number,
                "nodes": self.nodes,
            }
        )

    @property
    def process_ids(self) -> list[int]:
        """Process ids of the nodes, in order."""
        return [node.process_id for node in self._nodes]

    @property
    def now_ns(self) -> int:
        """Time of the run, by the clock that the nodes read."""
        return int(self._open.now_ns)

    @property
    def _open(self) -> Any:
        if self._session is None:
            raise InvalidArgument("the cluster is closed; make a new one")
        return self._session

    def incarnation(self, node: int) -> int:
        """Return the number of restarts of `node`."""
        return int(self._open.incarnation(self._check_node(node)))

    @checked
    def run(
        self,
        workload: Workload,
        duration_s: Duration | None = None,
        timeout_s: Duration | None = None,
    ) -> Result:
        """Run a workload on every node; see `Cluster.run`."""
        self._survives = workload.survives
        return super().run(workload, duration_s, timeout_s)

    def fault_counters(self) -> dict[str, tuple[int, int]]:
        """Return how often each fault fired, and how often it reached its target.

        The counts are sums over the nodes' present processes. No workload may run meanwhile. A
        node that does not answer ends the cluster, as in a run.
        """
        assert self._open is not None
        counters = super().fault_counters()
        if not self._faults:
            return counters
        with self._lock:
            if self._running is not None:
                raise InvalidArgument(
                    "faults are counted only between runs; wait for the end of this run"
                )
            self._check_up()
            try:
                for node in self._nodes:
                    node.send({"kind": "count"})
                answers = self._collect(START_S, "counting faults", 0)
            except BaseException:
                self.close()  # a later answer would be taken for that of the next run
                raise
        for key, (fired, reached) in counters.items():
            for answer in answers:
                more = answer["faults"].get(key, (0, 0))
                fired, reached = fired + more[0], reached + more[1]
            counters[key] = (fired, reached)
        return counters

    def _check_up(self) -> None:
        down = [node.number for node in self._nodes if node.killed]
        if down:
            raise Error(f"node {', '.join(map(str, down))} is down; restart() it first")

    def _run(self, name: str, parameters: Parameters, timeout_s: float) -> Columns:
        what = {"kind": "run", "workload": name, "parameters": parameters}
        return self._carry_out(f"workload {name}", what, timeout_s)

    def _program(self, functions: Mapping[int, Any], **options: Any) -> Columns:
        assert self._open is not None
        self._survives = False
        addresses = {node: address_of(function) for node, function in functions.items()}
        own: dict[int, dict[str, Any]] = {
            node.number: {"function": addresses.get(node.number)} for node in self._nodes
        }
        sources = self._sources(addresses)
        self._check_up()
        try:
            for node in self._nodes:
                for piece in sources.get(node.number, ()):
                    node.send(piece)
        except BaseException:
            self.close()  # a node may have got a part of a message
            raise
        options["members"] = sorted(functions)
        message = {"kind": "program", "function": None, "options": options}
        # The nodes themselves end at the deadline, unless one is stuck in Python.
        limit = 60.0 + 2e-9 * options["deadline_ns"]
        return self._carry_out("node programs", message, limit, own)

    def _sources(self, addresses: Mapping[int, dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
        """Return the messages that bring each node its files; on this machine it reads them."""
        del addresses
        return {}

    def _carry_out(
        self,
        what: str,
        request: dict[str, Any],
        timeout_s: float,
        own: Mapping[int, dict[str, Any]] | None = None,
    ) -> Columns:
        """Let all nodes carry out a request and return what they have measured.

        `own` has the fields of the request that differ between the nodes.
        """
        assert self._open is not None
        if not self._survives:
            self._check_up()
        try:
            with self._lock:
                self._runs += 1
                message = {**request, "run": self._runs}
                for node in self._nodes:
                    node.send({**message, **(own or {}).get(node.number, {})})
                self._running = message
            answers = self._collect(timeout_s, what, self._runs)
        except BaseException:
            self.close()
            raise
        finally:
            with self._lock:
                self._running = None
                for node in self._held.ended:
                    node.end()
                self._held.ended.clear()
        return _merge(answers)

    def _collect(self, timeout_s: float, what: str, run: int) -> list[dict[str, Any]]:
        """Wait for one message of every node; raise for the first node that fails or ends."""
        begin = time.monotonic()
        deadline = begin + timeout_s
        stops, next_look, stuck = StoppedNodes(what, self._survives), begin + _STOPS_S, False
        answers: dict[int, dict[str, Any]] = {}
        failures: list[tuple[int, Exception]] = []
        gone: set[NodeHandle] = set()  # need not be waited for any more
        with selectors.DefaultSelector() as selector:
            while True:
                with self._lock:
                    waiting = [
                        node
                        for node in self._nodes
                        if node.number not in answers and node not in gone
                    ]
                    for node in gone.intersection(self._held.ended):
                        self._held.ended.remove(node)
                        node.end()
                for node in waiting:
                    if node.descriptor not in selector.get_map():
                        selector.register(node.descriptor, selectors.EVENT_READ, node)
                left = deadline - time.monotonic()
                if not waiting or left <= 0 or stuck:
                    break
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + _STOPS_S
                    # A workload that survives goes on without the node until the others are done.
                    stuck = stops.look(waiting) and bool(answers or not self._survives)
                for key, _ in selector.select(min(left, _LOOK_S)):
                    node = key.data
                    try:
                        message = node.receive()
                    except EOFError:
                        selector.unregister(key.fd)
                        gone.add(node)
                        if not (self._survives and node.killed):
                            failures.append((0, node.end_error(what)))
                        continue
                    except _frames.ProtocolError as error:
                        selector.unregister(key.fd)
                        gone.add(node)
                        failures.append((1, Error(f"{what}: node {node.number} sent {error}")))
                        continue
                    if message is None or message.get("run", run) != run:
                        continue
                    selector.unregister(key.fd)
                    if message["kind"] == "failed":
                        gone.add(node)
                        failures.append((1, _rebuild(node.number, message)))
                    else:
                        answers[node.number] = message
                if failures:
                    deadline = min(deadline, time.monotonic() + GRACE_S)
        stopped = describe_stopped(waiting)
        if failures:
            # A dead node is the cause; the errors of its peers are the consequence.
            _, cause = min(failures, key=lambda failure: failure[0])
            raise type(cause)(f"{cause}; {stopped}") if stopped else cause
        if waiting:
            waited = f"within {time.monotonic() - begin:.0f} s"
            if stopped:
                raise Timeout(f"{what}: {stopped}; the run did not end {waited}")
            numbers = ", ".join(str(node.number) for node in waiting)
            raise Timeout(
                f"{what}: node {numbers} did not answer {waited}; give run() a longer timeout_s, "
                "or fewer nodes than cores"
            )
        return [answers[number] for number in sorted(answers)]

    def kill(self, node: int) -> None:
        """Kill a node's process (SIGKILL); its peers get retry-exceeded and flushed completions."""
        with self._lock:
            assert self._open is not None
            target = self._nodes[self._check_node(node)]
            target.killed = True
            target.kill()
            self._session.end(node)

    def restart(self, node: int) -> None:
        """Start a new process for a node, after killing its present one.

        The new process inherits nothing of the old one. Its `Env.incarnation` is one more, and
        peers connect to it again: queue pairs to the old process stay in error. The call blocks
        until the new process has attached.

        Raises
        ------
        Error
            The process did not start; the message has its last line of standard error.
        Timeout
            The process did not start in time.
        """
        self.kill(node)
        fresh = self._start(node)
        try:
            self._attach(fresh)
            self._await_attached(fresh)
        except BaseException:
            fresh.end()
            raise
        with self._lock:
            old, self._nodes[node] = self._nodes[node], fresh
            if self._running is None:
                old.end()
            else:
                self._held.ended.append(old)
                fresh.send(self._running)

    def _await_attached(self, node: NodeHandle) -> None:
        deadline = time.monotonic() + START_S
        message = None
        with selectors.DefaultSelector() as selector:
            selector.register(node.descriptor, selectors.EVENT_READ)
            while message is None:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    why = describe_stopped([node]) or "free a core or memory"
                    raise Timeout(f"restarting: {node.name} did not attach in {START_S} s; {why}")
                try:
                    message = node.receive()
                except EOFError:
                    raise node.end_error("restarting") from None
        if message["kind"] == "failed":
            raise _rebuild(node.number, message)

    def stop(self, node: int) -> None:
        """Stop a node's process (SIGSTOP): its threads do not run until `resume`.

        Peers can still access the node's memory by one-sided requests, as on a NIC. They treat the
        node as slow, not as dead. The stopped process keeps its locks. If it holds the lock of a
        queue, a peer waits for that queue up to 4 s. A run waits for the node until its timeout; it
        ends earlier if another program has stopped a node and the workload does not survive that.
        """
        self._signal(node, signal.SIGSTOP, paused=True)

    def resume(self, node: int) -> None:
        """Let a stopped node continue (SIGCONT)."""
        self._signal(node, signal.SIGCONT, paused=False)

    @checked
    def pause(self, node: int, duration_s: Seconds) -> None:
        """Stop a node (`stop`), wait, and let it continue (`resume`)."""
        self.stop(node)
        try:
            time.sleep(duration_s)
        finally:
            self.resume(node)

    def _signal(self, node: int, number: signal.Signals, paused: bool) -> None:
        with self._lock:
            assert self._open is not None
            target = self._nodes[self._check_node(node)]
            if not target.is_up():
                raise Error(f"node {node} is down; restart() it first")
            target.paused = paused
            target.signal(number)

    def close(self) -> None:
        """End all node processes and the session. Idempotent."""
        with self._lock:
            self._held.end()


def _rebuild(number: int, message: Mapping[str, Any]) -> Error:
    """Return the error that a node reported, as the same class."""
    kind = getattr(errors, message["error_kind"], Error)
    if not (isinstance(kind, type) and issubclass(kind, Error)):
        kind = Error
    return kind(f"node {number}: {message['error']}")


def _merge(answers: Sequence[Mapping[str, Any]]) -> Columns:
    """Concatenate the nodes' columns, in order."""
    names = ("metric", "unit", "value", "node", "thread", "notices", "noticed_by")
    merged: dict[str, Any] = {name: [v for a in answers for v in a[name]] for name in names}
    found = [answer["histograms"] for answer in answers]
    merged["histograms"] = {
        "metric": [name for h in found for name in h["metric"]],
        "encoded": [base64.b64decode(text) for h in found for text in h["encoded"]],
    }
    merged["histories"] = [base64.b64decode(t) for a in answers for t in a["histories"]]
    return merged
