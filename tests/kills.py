"""Kills a node while a run goes on, however late the run begins on a busy machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyrdma.processes import ProcessCluster


@contextmanager
def killed_in_run(cluster: ProcessCluster, node: int, after_s: float) -> Iterator[None]:
    """Kill `node` when the run of the block has gone on for `after_s`."""
    over = threading.Event()

    def kill() -> None:
        while cluster._running is None:
            if over.wait(0.001):
                return
        if not over.wait(after_s):
            cluster.kill(node)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()
