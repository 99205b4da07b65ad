"""Helpers of the experiments on the key-value store."""

from __future__ import annotations

from typing import Any, Literal

from pyrdma import Point, workload

System = Literal["loco", "sherman"]
KEYS = 10_000_000  # the paper's "10MB keyspace", read as keys
FILL = 0.8
THETA = {"uniform": 0.0, "zipfian": 0.99}
READS = {"read-only": 1.0, "mixed": 0.5, "write-only": 0.0}  # the mixed ratio is not in the paper
SERIES = {
    "loco_w3": "LOCO, paper, window 3",
    "loco_w128": "LOCO, paper, window 128",
    "sherman": "Sherman (model), window 3",
    "loco_w3_best": "LOCO, best, window 3",
    "loco_w128_best": "LOCO, best, window 128",
}
ABLATIONS: dict[str, dict[str, Any]] = {
    "sherman, entry": {"whole_leaf": False},
    "sherman, late unlock": {"combined_unlock": False},
    "sherman, tickets": {"grant": "ticket"},
}
"""The model of Sherman without what the paper supposes to be causes of the ranks (7.2)."""

# Virtual time until a steady state, in ns per operation in flight in the whole cluster. With
# zipfian changes nearly all operations end up in the queue of the hottest key's lock. The queue is
# full after the time in which the lock serves them all. With window 128 the rate of LOCO is level
# after 14 us each: 4.20 M/s at the begin, 2.42 after 3 us, 1.98 after 7, 1.58 after 14, 1.49 to
# 1.55 from 20 to 56 (2 nodes, 4 threads, c6525-25g). In the model of Sherman it takes 22 us each
# without its local queues, and less with them. Without such a queue an operation lasts as long as
# the polling threads need for all operations in flight.
QUEUE_NS: dict[System, int] = {"loco": 14_000, "sherman": 25_000}
TURN_NS = 250
LEAST_NS = 100_000
MEASURED_S = 0.5e-3  # least time; in a fifth of it, equally fast systems differed by 5 %


def is_paper_again(series: str, mix: str) -> bool:
    """Return whether a best series equals the paper's: a lookup takes no lock in either."""
    return series.endswith("_best") and mix == "read-only"


def settle_ns(system: System, in_flight: int, mix: str, distribution: str) -> int:
    """Return the warm-up time of a point in the simulator."""
    queues = mix != "read-only" and distribution != "uniform"
    return LEAST_NS + in_flight * (QUEUE_NS[system] if queues else TURN_NS)


def drift(found: Any) -> float:
    """Return how much faster the second half of the measured time was than the first."""
    early = found.value("early_ops")
    return float(found.value("ops") / early - 2)


def rate(point: Point, series: str, mix: str, distribution: str, **more: Any) -> Any:
    """Measure operations per second of all threads of all nodes."""
    in_sim = point.fabric == "sim"
    system: System = "sherman" if series.startswith("sherman") else "loco"
    window = 128 if "_w128" in series else 3
    in_flight = point["nodes"] * point["threads"] * window
    settle = settle_ns(system, in_flight, mix, distribution)
    own: Any = ABLATIONS.get(series, {})
    if system == "loco":
        preset = "best" if series.endswith("_best") else "paper"
        own = {"preset": preset, "stored_index": not in_sim}
    load = workload.LocoYcsb(
        system=system,
        **own,
        window=window,
        reads=READS[mix],
        theta=THETA[distribution],
        threads=point["threads"],
        keys=KEYS,
        fill=FILL,
        polling="callers" if point.fabric == "shm" else "thread",
        warmup_ns=settle if in_sim else 20_000_000,
        **more,
    )
    with point.cluster(nodes=point["nodes"]) as cluster:
        seconds = max(MEASURED_S, settle / 4 * 1e-9) if in_sim else 0.2
        return cluster.run(load, duration_s=point.duration(seconds, 10 * seconds))
