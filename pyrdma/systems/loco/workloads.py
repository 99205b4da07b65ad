"""The workloads of LOCO's channels; see `pyrdma.workload`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrdma.arguments import checked

from .generated import *  # noqa: F403
from .generated import LocoYcsb

if TYPE_CHECKING:
    from .channels import KvStore


class Ycsb(LocoYcsb):
    """`LocoYcsb` with the keys, the fill and the preset of a script's store.

    Each run makes a new store on every node, loads it, and runs native loops on it.

    Parameters
    ----------
    store
        The store, whose cluster must run the workload.
    settings
        Fields of `LocoYcsb`.
    """

    @checked
    def __init__(self, store: KvStore, **settings: Any) -> None:
        super().__init__(
            **{"keys": store.keys, "fill": store.fill, "preset": store.preset, **settings}
        )
