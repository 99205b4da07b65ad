"""Good calls of stores, to which `tests/face` gives bad values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyrdma import tailwind
from tests.face.world import World

Call = Callable[[World], tuple[Callable[..., Any], dict[str, Any]]]

SIGNED: set[str] = set()
"""Parameters that take -1."""

_SMALL: dict[str, Any] = {
    "log_bytes": 1 << 20,
    "segment_bytes": 64 << 10,
    "buffers": 8,
    "keys": 100,
    "workers": 0,
    "group_commit": True,
}


def _store(w: World) -> tailwind.Store:
    return tailwind.Store(w.four_nodes, replicas=1, **_SMALL)


def _awaiting(w: World) -> tailwind.Store:
    store = _store(w)
    store.write(b"k", b"v")
    w.four_nodes.kill(0)
    return store


def _killed(w: World) -> tailwind.Store:
    store = _store(w)
    _ = store._native  # its servers start
    w.four_nodes.kill(1)
    return store


CALLS: dict[str, Call] = {
    "tailwind.Store": lambda w: (
        tailwind.Store,
        {
            "cluster": w.four_nodes,
            "replication": "tailwind",
            "replicas": 1,
            "servers": 3,
            "durability": "completion",
            "placement": "random",
            **_SMALL,
            "partition_bytes": 1 << 20,
            "partition_records": 1000,
            "lease_s": 0.25,
            "timeout_s": 60.0,
        },
    ),
    "tailwind.Store.await_recovery": lambda w: (
        _awaiting(w).await_recovery,
        {"node": 0, "killed_ns": 0, "timeout_s": 2.0},
    ),
    "tailwind.Store.crash": lambda w: (_store(w).crash, {"node": 0, "timeout_s": 2.0}),
    "tailwind.Store.fill": lambda w: (
        _store(w).fill,
        {"objects": 10, "value_bytes": 100, "key_bytes": 30, "primary": 0},
    ),
    "tailwind.Store.read": lambda w: (_store(w).read, {"key": b"k"}),
    "tailwind.Store.remove": lambda w: (_store(w).remove, {"key": b"k"}),
    "tailwind.Store.restart": lambda w: (_killed(w).restart, {"node": 1}),
    "tailwind.Store.write": lambda w: (
        _store(w).write,
        {"key": b"k", "value": b"v"},
    ),
}
