"""What the experiments on the key-value store share."""

from __future__ import annotations

from typing import Any

from pyrdma import Point, workload

KEYS = 10_000_000  # the paper's "10MB keyspace", read as keys
FILL = 0.8
THETA = {"uniform": 0.0, "zipfian": 0.99}
READS = {"read-only": 1.0, "mixed": 0.5, "write-only": 0.0}  # the mixed ratio is not in the paper
SERIES = {
    "loco_w3": "LOCO, window 3",
    "loco_w128": "LOCO, window 128",
    "sherman": "Sherman (model), window 3",
}


def rate(point: Point, series: str, mix: str, distribution: str, **more: Any) -> Any:
    """Measure operations per second of all threads of all nodes."""
    in_sim = point.fabric == "sim"
    long = 2 if series == "loco_w128" else 1  # its operations last about 50 us
    load = workload.LocoYcsb(
        system="sherman" if series == "sherman" else "loco",
        window=128 if series == "loco_w128" else 3,
        reads=READS[mix],
        theta=THETA[distribution],
        threads=point["threads"],
        keys=KEYS,
        fill=FILL,
        stored_index=not in_sim,
        polling="callers" if point.fabric == "shm" else "thread",
        warmup_ns=40_000 * long if in_sim else 20_000_000,
        **more,
    )
    with point.cluster(nodes=point["nodes"]) as cluster:
        seconds = 60e-6 * long if in_sim else 0.2
        return cluster.run(load, duration_s=point.duration(seconds, 10 * seconds))
