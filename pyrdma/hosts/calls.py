"""What a daemon does for a driver beside its nodes: sessions, clocks, facts, counters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pyrdma._native import native
from pyrdma.devices import Wish
from pyrdma.errors import InvalidArgument

from . import clocks, facts, stored
from .channel import Seal

__all__ = ["Calls"]


class Calls:
    """The calls of `pyrdma.hosts.messages.CALLS` that need no node; one thread makes them.

    Parameters
    ----------
    seal
        Hides secrets on the way to the driver; None over pipes.
    """

    def __init__(self, seal: Seal | None) -> None:
        self._seal = seal
        self._sessions: dict[int, Any] = {}
        self._next = 1
        self._clock: Any = None
        self._responder: clocks.Responder | None = None

    def close(self) -> None:
        """End the sessions."""
        self._sessions.clear()
        if self._responder is not None:
            self._responder.close()

    def facts(self, **wish: Any) -> dict[str, Any]:
        """Return what `pyrdma.hosts.facts.collect` finds, with the device that nodes use here."""
        return facts.collect(Wish(**wish))

    def checks(self) -> dict[str, Any]:
        """Return the lines of ``pyrdma doctor`` that are about nodes."""
        from pyrdma import doctor

        return {"checks": [asdict(check) for check in doctor.checks_of_a_node()]}

    def open_session(self, fabric: str, nodes: int, seed: int, address: str) -> dict[str, Any]:
        """Open a session; return its number, its name and its token."""
        core: Any = native()
        if fabric == "shm":
            session = core.shm.Session(nodes=nodes, seed=seed)
        else:
            session = core.ibverbs.Session(
                nodes=nodes, seed=seed, address=address or "127.0.0.1", clock=self._own_clock()
            )
        number, self._next = self._next, self._next + 1
        self._sessions[number] = session
        token = session.token
        if self._seal is not None:
            token = self._seal.hide(token, f"session {number}")
        return {"session": number, "name": session.name, "token": token}

    def close_session(self, session: int) -> None:
        """End a session."""
        self._sessions.pop(session, None)

    def _session(self, number: int) -> Any:
        if number not in self._sessions:
            raise InvalidArgument(f"session {number} is closed; make a new cluster")
        return self._sessions[number]

    def now(self, session: int) -> int:
        """Return the time of a session."""
        return int(self._session(session).now_ns)

    def incarnation(self, session: int, node: int) -> int:
        """Return how often a node has been restarted."""
        return int(self._session(session).incarnation(node))

    def forget(self, session: int, node: int) -> None:
        """Note that a node's process has ended."""
        self._session(session).end(node)

    def counters(self) -> dict[str, Any]:
        """Return the counters of all RDMA ports; see `pyrdma.hosts.facts.counters`."""
        return facts.counters()

    def list_results(self, after: str) -> dict[str, Any]:
        """Return the files of results on this host; see `pyrdma.hosts.stored.listed`."""
        return stored.listed(after)

    def read_result(self, file: str, offset: int) -> str:
        """Return a piece of a file of results; see `pyrdma.hosts.stored.piece`."""
        return stored.piece(file, offset)

    def _own_clock(self) -> Any:
        if self._clock is None:
            core: Any = native()
            self._clock = core.ibverbs.Clock()
        return self._clock

    def clock(self) -> dict[str, Any]:
        """Return the parts of this host's clock, which its nodes share."""
        return {"parts": list(self._own_clock().parts)}

    def serve(self, address: str, key: str) -> int:
        """Answer probes of other hosts at this address from now on; return the port."""
        if self._responder is not None:
            self._responder.close()
        self._responder = clocks.Responder(address, bytes.fromhex(key), self._own_clock())
        return self._responder.port

    def probe(self, address: str, port: int, key: str, count: int) -> dict[str, Any]:
        """Compare this host's clock with that of the host which serves there."""
        found = clocks.probe(address, port, bytes.fromhex(key), count, self._own_clock())
        return asdict(found)
