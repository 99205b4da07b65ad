"""The workloads of LOCO's channels; see `pyrdma.workload`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .generated import *  # noqa: F403
from .generated import LocoYcsb

if TYPE_CHECKING:
    from .channels import KvStore


class Ycsb(LocoYcsb):
    """`LocoYcsb` on a store that a script has named: with its keys, its fill and its preset.

    Each run makes the store anew on every node, loads it, and drives it natively.

    Parameters
    ----------
    store
        The store; its cluster is the one to run on.
    settings
        Fields of `LocoYcsb`.
    """

    def __init__(self, store: KvStore, **settings: Any) -> None:
        super().__init__(
            **{"keys": store.keys, "fill": store.fill, "preset": store.preset, **settings}
        )
