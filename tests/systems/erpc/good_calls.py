"""Good calls of the endpoints, to which `tests/face` gives bad values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyrdma import erpc, workload
from tests.face.world import World

Call = Callable[[World], tuple[Callable[..., Any], dict[str, Any]]]

SIGNED: set[str] = set()
"""Parameters that take -1."""


def _session(w: World) -> erpc.Session:
    mesh = erpc.Mesh(w.cluster)
    mesh.serve(1, 1, erpc.Echo())
    return mesh.connect(0, 1)


_WAIT = {"most": 8, "timeout_s": 1.0}

CALLS: dict[str, Call] = {
    "erpc.Mesh": lambda w: (
        erpc.Mesh,
        {"cluster": w.cluster, "threads": 1, "preset": "paper", "workers": 0},
    ),
    "erpc.Mesh.connect": lambda w: (
        erpc.Mesh(w.cluster).connect,
        {"node": 0, "to": 1, "timeout_s": 1.0},
    ),
    "erpc.Mesh.serve": lambda w: (
        erpc.Mesh(w.cluster, workers=1).serve,
        {"node": 0, "type": 1, "handler": erpc.Echo(), "in_worker": False},
    ),
    "erpc.Session": lambda w: (
        erpc.Session,
        {"mesh": erpc.Mesh(w.cluster), "node": 0, "to": 1, "number": 0},
    ),
    "erpc.Session.call": lambda w: (_session(w).call, {"type": 1, "data": b"x", **_WAIT}),
    "erpc.Session.calls": lambda w: (
        _session(w).calls,
        {"type": 1, "requests": [b"x"], "return_errors": False, **_WAIT},
    ),
    "erpc.Sized": lambda _: (erpc.Sized, {"size": 1}),
    "erpc.Spin": lambda _: (erpc.Spin, {"ns": 1}),
    "erpc.ErpcLoad": lambda w: (workload.ErpcLoad, {"mesh": erpc.Mesh(w.cluster)}),
}
"""Name -> the callable and keyword arguments that it accepts."""
