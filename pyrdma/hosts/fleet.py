"""The connected hosts of a testbed: made in parallel, watched, and ended together."""

from __future__ import annotations

import os
import queue
import selectors
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyrdma import _frames
from pyrdma.arguments import FilePath, checked
from pyrdma.errors import HostLost, InvalidArgument, Unavailable
from pyrdma.sources import source_digest

from .host import REACH_S, SILENT_S, Host
from .inventory import Inventory

__all__ = ["CONNECT_S", "Fleet", "TooFewSlots", "current", "explain", "using"]

CONNECT_S = 60.0
"""Longest time for a host to greet."""

_PING_S = 2.0
_AT_ONCE = 32
"""Most connections that begin at once: each is a thread or a process, and a log-in there."""
_TURN_S = REACH_S
"""A host that has not greeted after this time lets the next one begin, and may greet later."""


class TooFewSlots(Unavailable):
    """The hosts may hold fewer nodes than a point needs; the message has both numbers."""


_current: ContextVar[Fleet | None] = ContextVar("fleet", default=None)


class Fleet:
    """Hosts with a daemon each. Use it as a context manager, or call `close`.

    Parameters
    ----------
    inventory
        The hosts. All must be reachable and have the same sources.

    Raises
    ------
    Error
        Hosts cannot be reached or have another release; the message names each and the remedy.
    """

    def __init__(self, inventory: Inventory, *, strict: bool = True) -> None:
        self.inventory = inventory
        self.testbed = inventory.testbed
        self.hosts = [Host(entry) for entry in inventory.hosts]
        self._watch = _Watch(self.hosts)
        self._end = weakref.finalize(self, self._watch.close)
        try:
            self._watch.start()
            turns = len(self.hosts) / _AT_ONCE * _TURN_S  # until the last one has begun
            deadline = time.monotonic() + turns + CONNECT_S
            for host in self.hosts:
                with suppress(Exception):
                    host.ready.exception(max(0.0, deadline - time.monotonic()))
                if not host.ready.done():
                    host.lose("it did not greet in time; look at it with ssh")
            if strict:
                self._check()
        except BaseException:
            self.close()
            raise

    @classmethod
    @checked
    def open(cls, inventory: FilePath | Inventory, hosts: str | None = None) -> Fleet:
        """Connect to the hosts of an inventory, or to those that the pattern `hosts` names."""
        loaded = inventory if isinstance(inventory, Inventory) else Inventory.load(Path(inventory))
        return cls(loaded.select(hosts))

    def _check(self) -> None:
        """Raise unless all hosts are there with this program's sources."""
        problems = [
            f"{host.name}: {explain(host, self.inventory.path)}" for host in self.hosts if host.lost
        ]
        other = [h for h in self.hosts if not h.lost and h.hello["digest"] != source_digest()]
        if other:
            versions = ", ".join(f"{h.name} has {h.hello['digest']}" for h in other[:10])
            problems.append(
                f"{len(other)} hosts run other code than this program ({source_digest()}): "
                f"{versions}; install the same release on all: ansible-playbook -i "
                f'{self.inventory.path} "$(pyrdma playbooks)/site.yml"'
            )
        if problems:
            raise HostLost(
                f"{len(problems)} problems with the hosts of {self.inventory.path}:\n  "
                + "\n  ".join(problems)
            )

    def subset(self, host: Host) -> Fleet:
        """Return a view of one host of this fleet, which does not own the connection."""
        view = object.__new__(Fleet)
        view.inventory, view.testbed, view.hosts = self.inventory, self.testbed, [host]
        view._watch, view._end = self._watch, weakref.finalize(view, lambda: None)
        return view

    def place(self, nodes: int) -> list[Host]:
        """Return the host of each node: hosts take turns until their slots are full.

        Raises
        ------
        Unavailable
            The hosts have too few slots.
        HostLost
            A host has been lost.
        """
        self.require()
        if nodes > self.inventory.slots:
            raise TooFewSlots(
                f"needs {nodes} nodes; the {len(self.hosts)} hosts of {self.inventory.path} have "
                f"{self.inventory.slots} slots; add hosts, or raise pyrdma_slots"
            )
        found: list[Host] = []
        turn = 0
        while len(found) < nodes:
            found += [h for h in self.hosts if h.entry.slots > turn][: nodes - len(found)]
            turn += 1
        return found

    def require(self) -> None:
        """Raise HostLost if a host has been lost."""
        for host in self.hosts:
            if host.lost:
                raise HostLost(host.complaint())

    def facts(self) -> dict[Host, dict[str, Any]]:
        """Return what each host is (`pyrdma.hosts.facts`), asked once."""
        unknown = [h for h in self.hosts if not h.facts]
        asked = [h.ask("facts", **asdict(h.entry.wish)) for h in unknown]
        for host, future in zip(unknown, asked, strict=True):
            host.facts = host.wait(future, "facts")
        return {h: h.facts for h in self.hosts}

    def labels(self, fabric: str) -> dict[str, str]:
        """Return the names of these hosts in the identity of a point.

        Hosts of the same kind are alike, so that a testbed that loses one keeps its points.
        """
        kinds = set()
        for facts in self.facts().values():
            words = [facts["cpu"], f"{facts['cores']} cores"]
            if fabric == "verbs":
                nic = facts["nic_board"] or facts["nic_kind"] or facts["nic"]
                words += [nic, f"firmware {facts['firmware']}", facts["link_rate"]]
            kinds.add(", ".join(words))
        host = self.hosts[0].name if fabric == "shm" and len(self.hosts) == 1 else ""
        machine = "; ".join(sorted(kinds))[:4096]
        return {"machine": machine, "testbed": self.testbed, "host": host}

    def require_fabric(self, fabric: str) -> None:
        """Raise Unavailable unless every host has what the fabric needs, naming the others."""
        if fabric != "verbs":
            return
        found = {host.name: facts["nic_problem"] for host, facts in self.facts().items()}
        problems = [f"{name}: {problem}" for name, problem in found.items() if problem]
        if problems:
            raise Unavailable(
                f"{len(problems)} of {len(self.hosts)} hosts have no RDMA device that fits:\n  "
                + "\n  ".join(problems)
            )

    def close(self) -> None:
        """End the daemons that this program started, with their nodes. Idempotent."""
        self._end()

    def __enter__(self) -> Fleet:  # noqa: PYI034 - typing.Self is of Python 3.11
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def using(fleet: Fleet | None) -> Iterator[None]:
    """Let `Point.cluster` take these hosts inside the block, in this thread."""
    token = _current.set(fleet)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Fleet | None:
    """Return the hosts that points use in this thread; None: nodes are on this machine."""
    return _current.get()


_INSTALL = (
    'pyrdma is not installed there: ansible-playbook -i {path} "$(pyrdma playbooks)/site.yml"'
)
_REMEDIES = (
    ("Host key verification failed", "its key is not known: compare and accept it by `ssh {host}`"),
    ("REMOTE HOST IDENTIFICATION", "its key has changed; if that is right, `ssh-keygen -R {host}`"),
    ("Permission denied", "it refuses the log-in; give ansible_user and a key that ssh-agent has"),
    ("Could not resolve", "its name has no address; correct ansible_host"),
    ("Connection refused", "no sshd answers there; correct ansible_host and ansible_port"),
    ("timed out", "it does not answer; look whether it runs, and at ansible_host"),
    ("No route to host", "no network leads to it; look whether it runs"),
    ("not found", _INSTALL),
    ("No such file", _INSTALL),
)


def explain(host: Host, path: str | Path = "INVENTORY") -> str:
    """Return why a host is lost, with the remedy."""
    for sign, remedy in _REMEDIES:
        if sign in host.lost and host.entry.connection != "listen":
            name = host.entry.host or host.name
            return f"{host.lost}; {remedy.format(host=name, path=path)}"
    return host.lost


class _Watch:
    """The thread that reads all channels, pings all hosts, and notices the silent ones.

    It waits for its selector alone, since the living hosts need its pings. So other threads make
    the connections, which a dead host may hold up for `REACH_S`, and pings are posted.
    """

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self._selector = selectors.DefaultSelector()
        self._closing = False
        self._owner = os.getpid()
        self._waiting = list(reversed(hosts))
        self._begun: dict[Host, float] = {}
        self._connected: queue.SimpleQueue[Host] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="pyrdma-hosts")

    def start(self) -> None:
        if not self._hosts:
            raise InvalidArgument("the inventory has no hosts")
        self._thread.start()

    def _run(self) -> None:
        pinged = time.monotonic()
        while not self._closing:
            self._begin()
            self._admit()
            are_all_ready = not self._waiting and all(h.ready.done() for h in self._begun)
            for key, _ in self._selector.select(0.2 if are_all_ready else 0.02):
                self._read(key.data)
            now = time.monotonic()
            is_due = now - pinged >= _PING_S
            pinged = now if is_due else pinged
            for host in self._hosts:
                if host.lost:
                    self._forget(host)
                elif host.is_silent():
                    self._lose(host, f"it has been silent for {SILENT_S:.0f} s")
                elif is_due and host.greeted:
                    host.ping()

    def _begin(self) -> None:
        """Begin some of the connections that wait."""
        now = time.monotonic()
        self._begun = {
            h: since
            for h, since in self._begun.items()
            if not h.ready.done() and now - since < _TURN_S
        }
        while self._waiting and len(self._begun) < _AT_ONCE:
            host = self._waiting.pop()
            self._begun[host] = now
            try:
                threading.Thread(target=self._connect, args=(host,), daemon=True).start()
            except RuntimeError as error:  # the limit of processes
                host.lose(str(error))

    def _connect(self, host: Host) -> None:
        """Make a connection, in a thread of its own."""
        try:
            host.start()
        except Exception as error:
            host.lose(str(error))
        else:
            self._connected.put(host)

    def _admit(self) -> None:
        """Look after the connections that have been made."""
        while not self._connected.empty():
            host = self._connected.get()
            if host.channel is not None and not host.lost:
                self._selector.register(host.channel.descriptor, selectors.EVENT_READ, host)
                host.begin()

    def _read(self, host: Host) -> None:
        try:
            for slot, content in host.receive():
                host.take(slot, content)
        except EOFError:
            said = host.last_words()
            what = "the connection ended" if host.ready.done() else "no daemon greeted"
            self._lose(host, f"{what}: {said}" if said else what)
        except (_frames.ProtocolError, OSError) as error:
            self._lose(host, f"it sent {error}")

    def _lose(self, host: Host, reason: str) -> None:
        self._forget(host)
        host.lose(reason)

    def _forget(self, host: Host) -> None:
        if host.channel is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(host.channel.descriptor)

    def close(self) -> None:
        if os.getpid() != self._owner:
            return  # a forked copy of this program
        self._closing = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        for host in self._hosts:
            host.lose("its fleet is closed")  # a connection that is being made ends itself
            if host.channel is not None:
                host.channel.close()
        for host in self._hosts:
            host.end()
        self._selector.close()
