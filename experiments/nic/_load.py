"""Runs of `verbs_load` as the micro-benchmarks load their machines."""

from __future__ import annotations

from typing import Any

from pyrdma import Point, workload

__all__ = ["each_to_all", "latency", "rate"]

SPAN = 60e-6  # seconds of a measurement; longer ones give the same rates within a percent


def rate(
    point: Point, nodes: int, warmup: float = SPAN / 2, machines: int = 1, **load: Any
) -> dict[str, Any]:
    """Measure requests per second, shared by `machines`."""
    with point.cluster(nodes=nodes) as cluster:
        result = cluster.run(
            workload.VerbsLoad(warmup_ns=round(warmup * 1e9), **load),
            duration_s=point.duration(SPAN, 10 * SPAN),
        )
    found = {"rate": (result.value("rate") / machines, "op/s")}
    for operation in result.histograms:
        found["latency"] = (result.latency(operation).mean, "ns")
    return found


def each_to_all(point: Point, nodes: int, queue_pairs: int, **load: Any) -> dict[str, Any]:
    """Measure the rate of one of `nodes` machines that all load all others at random.

    `queue_pairs` belong to each thread. Contexts of many queue pairs reach the NIC's cache first.
    """
    warmup = SPAN / 2 if queue_pairs <= nodes else 2 * SPAN
    return rate(
        point,
        nodes,
        warmup,
        machines=nodes,
        servers=0,
        pattern="random",
        batch=1,
        qps=queue_pairs,
        **load,
    )


def latency(point: Point, **load: Any) -> dict[str, Any]:
    """Measure one request at a time: half a round trip of messages, or a read's whole one."""
    mode: dict[str, Any] = {"mode": "latency"} if load["op"] == "read" else {"measure": "pingpong"}
    options = {"overrides": load.pop("overrides")} if "overrides" in load else {}
    with point.cluster(nodes=2, **options) as cluster:
        result = cluster.run(
            workload.VerbsLoad(**mode, **load), duration_s=point.duration(SPAN, 10 * SPAN)
        )
    return {"latency": (result.latency(load["op"]).mean, "ns")}
