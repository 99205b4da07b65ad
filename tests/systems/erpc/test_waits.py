"""The event loop of an endpoint wakes as soon in virtual time as a loop that polls."""

from __future__ import annotations

import pyrdma as rd

SERVICE_NS = 100_000


def test_a_request_does_not_wait_as_long_as_the_turn_before_it() -> None:
    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        load = rd.workload.ErpcLoad(pattern="pairs", service_ns=SERVICE_NS)
        latency = cluster.run(load, duration_s=0.005).latency("rpc")
    assert latency.count > 20
    assert latency.max < 1.1 * SERVICE_NS
