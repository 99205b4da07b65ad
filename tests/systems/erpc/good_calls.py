"""Good calls of the endpoints, to which `tests/face` gives bad values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyrdma import erpc, workload
from tests.face.world import World

Call = Callable[[World], tuple[Callable[..., Any], dict[str, Any]]]

SIGNED: set[str] = set()
"""Parameters that take -1."""

CALLS: dict[str, Call] = {
    "erpc.Mesh": lambda w: (erpc.Mesh, {"cluster": w.cluster, "threads": 1, "preset": "paper"}),
    "erpc.ErpcLoad": lambda w: (workload.ErpcLoad, {"mesh": erpc.Mesh(w.cluster)}),
}
"""Name -> the callable and keyword arguments that it accepts."""
