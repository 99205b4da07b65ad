"""Good calls of the channels, to which `tests/face` gives bad values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyrdma import loco, workload
from pyrdma.program import Node
from tests.face.world import World

Call = Callable[[World], tuple[Callable[..., Any], dict[str, Any]]]

SIGNED = {
    "loco.OwnedVar.store value",
    "loco.SharedQueue.push value",
    "loco.AtomicVar.fetch_add addend",
}
"""Parameters that take -1."""


def _store(w: World) -> Any:
    return loco.KvStore(w.cluster, "n", keys=8, fill=0.5)


def _hold(lock: Any) -> Callable[..., Any]:
    def hold(**given: Any) -> None:
        with lock.held(**given):
            pass

    return hold


def _held(w: World) -> Any:
    lock = loco.TicketLock(w.cluster, "n")
    lock.acquire(node=0)
    return lock


def _arrive(w: World) -> Callable[..., Any]:
    barrier = loco.Barrier(w.cluster, "n")

    def arrive(**given: Any) -> None:
        async def main(node: Node) -> None:
            await node.do(barrier.arrive, **(given if node.id == 0 else {"node": node.id}))

        w.cluster.program(main)

    return arrive


CALLS: dict[str, Call] = {
    "loco.AtomicVar": lambda w: (loco.AtomicVar, {"cluster": w.cluster, "name": "n", "host": 0}),
    "loco.AtomicVar.compare_swap": lambda w: (
        loco.AtomicVar(w.cluster, "n", 0).compare_swap,
        {"expected": 0, "desired": 1, "node": 0},
    ),
    "loco.AtomicVar.fetch_add": lambda w: (
        loco.AtomicVar(w.cluster, "n", 0).fetch_add,
        {"addend": 1, "node": 0},
    ),
    "loco.AtomicVar.load": lambda w: (loco.AtomicVar(w.cluster, "n", 0).load, {"node": 0}),
    "loco.Barrier": lambda w: (loco.Barrier, {"cluster": w.cluster, "name": "n"}),
    "loco.Barrier.arrive": lambda w: (_arrive(w), {"node": 0}),
    "loco.Channel": lambda w: (loco.Channel, {"cluster": w.cluster, "name": "n"}),
    "loco.KvStore": lambda w: (
        loco.KvStore,
        {"cluster": w.cluster, "name": "n", "keys": 8, "fill": 0.5, "preset": "best"},
    ),
    "loco.KvStore.insert": lambda w: (_store(w).insert, {"key": 0, "value": 0, "node": 0}),
    "loco.KvStore.lookup": lambda w: (_store(w).lookup, {"key": 0, "node": 0}),
    "loco.KvStore.remove": lambda w: (_store(w).remove, {"key": 0, "node": 0}),
    "loco.KvStore.update": lambda w: (_store(w).update, {"key": 0, "value": 0, "node": 0}),
    "loco.OwnedVar": lambda w: (loco.OwnedVar, {"cluster": w.cluster, "name": "n", "owner": 0}),
    "loco.OwnedVar.load": lambda w: (loco.OwnedVar(w.cluster, "n", 0).load, {"node": 0}),
    "loco.OwnedVar.pull": lambda w: (loco.OwnedVar(w.cluster, "n", 0).pull, {"node": 0}),
    "loco.OwnedVar.store": lambda w: (loco.OwnedVar(w.cluster, "n", 0).store, {"value": 0}),
    "loco.SharedQueue": lambda w: (
        loco.SharedQueue,
        {"cluster": w.cluster, "name": "n", "capacity": 8},
    ),
    "loco.SharedQueue.pop": lambda w: (loco.SharedQueue(w.cluster, "n", 8).pop, {"node": 0}),
    "loco.SharedQueue.push": lambda w: (
        loco.SharedQueue(w.cluster, "n", 8).push,
        {"value": 0, "node": 0},
    ),
    "loco.SharedRegion": lambda w: (
        loco.SharedRegion,
        {"cluster": w.cluster, "name": "n", "size": 64},
    ),
    "loco.SharedRegion.read": lambda w: (
        loco.SharedRegion(w.cluster, "n", 64).read,
        {"size": 8, "node": 0, "of": 1, "offset": 0},
    ),
    "loco.SharedRegion.write": lambda w: (
        loco.SharedRegion(w.cluster, "n", 64).write,
        {"data": b"data", "node": 0, "to": 1, "offset": 0},
    ),
    "loco.TicketLock": lambda w: (
        loco.TicketLock,
        {"cluster": w.cluster, "name": "n", "preset": "best"},
    ),
    "loco.TicketLock.acquire": lambda w: (loco.TicketLock(w.cluster, "n").acquire, {"node": 0}),
    "loco.TicketLock.held": lambda w: (_hold(loco.TicketLock(w.cluster, "n")), {"node": 0}),
    "loco.TicketLock.release": lambda w: (_held(w).release, {"node": 0}),
    "loco.TicketLock.try_acquire": lambda w: (
        loco.TicketLock(w.cluster, "n").try_acquire,
        {"node": 0},
    ),
    "loco.Ycsb": lambda w: (workload.Ycsb, {"store": _store(w)}),
}
"""Name -> the callable and keyword arguments that it accepts."""
