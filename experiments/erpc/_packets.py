"""What the NICs of client and server do for one request (figures 2 and 3).

``native/systems/erpc/golden_trace_test.cc`` has the same traffic packet by packet.
"""

from __future__ import annotations

from typing import Any

from pyrdma import Point, workload

__all__ = ["CREDITS", "ENDS", "MESSAGES", "traffic"]

CREDITS = 2  # of the paper's figure 3
PACKET_BYTES = 1024
MESSAGES = {1: 200, 3: 2500}  # packets of a message and its bytes, too long for inline data
REQUESTS = (10, 110)
ENDS = ("client", "server")
COUNTERS = {"packets": "count", "wire_bytes": "B", "payload_dma_reads": "count"}


def counted(point: Point, request: int, response: int, requests: int) -> list[dict[str, int]]:
    """Return the counters of both NICs after `requests` requests, one at a time."""
    load = workload.ErpcLoad(
        preset="paper",
        pattern="pairs",
        request=MESSAGES[request],
        response=MESSAGES[response],
        credits=CREDITS,
        packet_bytes=PACKET_BYTES,
        warmup_ns=0,
        iterations=requests,
    )
    cluster: Any
    with point.cluster(nodes=len(ENDS)) as cluster:
        cluster.run(load, duration_s=1.0)  # the requests end it before
        return [cluster.counters(node) for node in range(len(ENDS))]


def traffic(point: Point, request: int, response: int) -> dict[str, tuple[float, str]]:
    """Return what one request adds to the counters, for its packets and its response's.

    The difference of two runs leaves out the packets that open and close the session.
    """
    few, many = (counted(point, request, response, requests) for requests in REQUESTS)
    added = REQUESTS[1] - REQUESTS[0]
    return {
        f"{end}_{name}": ((many[node][name] - few[node][name]) / added, unit)
        for node, end in enumerate(ENDS)
        for name, unit in COUNTERS.items()
    }
