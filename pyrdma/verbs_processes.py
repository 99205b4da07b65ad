"""A cluster of node processes over the RDMA device of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ._native import native
from .devices import Wish
from .processes import ProcessCluster

__all__ = ["VerbsProcessCluster"]


class VerbsProcessCluster(ProcessCluster):
    """Nodes as processes, each of which opens the device; see `Cluster.local`.

    The nodes exchange set-up data through a server of the controller at 127.0.0.1. Their requests
    go through the device, also in loopback.
    """

    fabric = "verbs"

    def __init__(self, nodes: int, seed: int, wish: Wish) -> None:
        self._wish = wish
        super().__init__(nodes, seed)

    def _new_session(self) -> Any:
        core: Any = native()
        return core.ibverbs.Session(nodes=self.nodes, seed=self.seed)

    def _kind(self) -> Mapping[str, Any]:
        return {"kind": "attach_verbs", **asdict(self._wish)}
