"""The endpoints of a cluster: signatures and docstrings."""

from __future__ import annotations

from typing import Annotated, Literal

from pyrdma.arguments import Between, checked
from pyrdma.cluster import Cluster

__all__ = ["Mesh"]

Preset = Literal["paper", "public", "best"]
"""The protocol: the paper's, that with the public program's constants, or the improved one."""


class Mesh:
    """The RPC endpoints of a cluster: one for each thread of each node (eRPC, section 3.1).

    Parameters
    ----------
    cluster
        The cluster whose nodes take part.
    threads
        Endpoints of a node; 1 to 64.
    preset
        The protocol of the endpoints.
    """

    @checked
    def __init__(
        self,
        cluster: Cluster,
        threads: Annotated[int, Between(1, 64)] = 1,
        preset: Preset = "best",
    ) -> None:
        self.cluster = cluster
        self.threads = threads
        self.preset = preset

    def __repr__(self) -> str:
        return f"Mesh(threads={self.threads}, preset={self.preset!r})"
