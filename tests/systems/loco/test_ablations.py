"""The model of Sherman without what the paper supposes to be causes of the ranks (7.2)."""

from __future__ import annotations

from typing import Any, Literal

import pyrdma as rd
from pyrdma import workload
from pyrdma._workload import in_effect


def latency(operation: Literal["lookup", "update"], percentile: float, **options: Any) -> float:
    load = workload.LocoYcsb(
        system="sherman",
        reads=float(operation == "lookup"),
        threads=2,
        window=1,
        keys=2000,
        warmup_ns=20_000,
        **options,
    )
    with rd.Cluster.sim(nodes=3, profile="c6525-25g", seed=1) as cluster:
        return cluster.run(load, duration_s=2e-4).latency(operation).percentile(percentile)


def test_a_lookup_of_the_entry_alone_is_faster() -> None:
    # The rest of a leaf of 1 KiB takes 0.3 us on the link of 25 Gbps.
    assert latency("lookup", 50) - latency("lookup", 50, whole_leaf=False) > 150


def test_an_update_that_unlocks_late_takes_another_round_trip() -> None:
    assert latency("update", 50, combined_unlock=False) > 1.2 * latency("update", 50)


def test_tickets_bound_the_wait_for_a_lock_and_test_and_set_does_not() -> None:
    contended: dict[str, Any] = {"theta": 2.0, "local_queues": False}
    spread = [
        latency("update", 99, grant=grant, **contended)
        / latency("update", 50, grant=grant, **contended)
        for grant in ("test_and_set", "ticket")
    ]
    assert spread[1] < 2
    assert spread[0] > 3


def test_the_parameters_in_effect_are_of_the_chosen_system() -> None:
    loco, sherman = (in_effect("loco_ycsb", {"system": s}) for s in ("loco", "sherman"))
    assert "grant" in sherman.keys() - loco.keys()
    assert "inserts" in loco.keys() - sherman.keys()
