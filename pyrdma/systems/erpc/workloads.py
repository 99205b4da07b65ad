"""The workloads of eRPC; see `pyrdma.workload`."""

from __future__ import annotations

from typing import Any

from pyrdma.arguments import checked

from . import generated
from .generated import *  # noqa: F403
from .mesh import Mesh


class ErpcLoad(generated.ErpcLoad):  # type: ignore[no-redef]
    """Threads send requests in batches and keep several under way (eRPC, section 6).

    Every response is compared with its request. Latencies: ``rpc``, from the call to the
    continuation; ``background``, of the background thread; ``rtt``, of packets, with `record_rtt`.

    Parameters
    ----------
    mesh
        The endpoints; each run makes new ones on every node. Without a mesh the settings
        ``threads`` and ``preset`` take its place.
    settings
        Fields of `pyrdma.systems.erpc.generated.ErpcLoad`.
    """

    @checked
    def __init__(self, mesh: Mesh | None = None, **settings: Any) -> None:
        if mesh is not None:
            settings = {"threads": mesh.threads, "preset": mesh.preset, **settings}
        super().__init__(**settings)
