"""The throughput of LOCO's figure 5 does not depend on the warm-up."""

from __future__ import annotations

import pytest

from experiments.loco import _store
from pyrdma import Cluster, workload

NODES, THREADS, WINDOW = 2, 4, 128


def rate(warmup_ns: int) -> float:
    load = workload.LocoYcsb(
        preset="paper",
        window=WINDOW,
        reads=0.0,
        theta=_store.THETA["zipfian"],
        threads=THREADS,
        keys=_store.KEYS // 10,
        fill=_store.FILL,
        stored_index=False,
        polling="thread",
        warmup_ns=warmup_ns,
    )
    with Cluster.sim(nodes=NODES, profile="c6525-25g", seed=1) as cluster:
        return float(cluster.run(load, duration_s=2e-3).value("rate"))


def test_changes_of_hot_keys_have_settled() -> None:
    settle = _store.settle_ns("loco", NODES * THREADS * WINDOW, "write-only", "zipfian")
    settled = rate(settle)
    assert rate(2 * settle) == pytest.approx(settled, rel=0.15)
    # A warm-up that suffices for uniform keys measures the growth of the queue.
    assert rate(100_000) > 1.5 * settled
