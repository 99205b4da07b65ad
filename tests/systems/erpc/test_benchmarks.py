"""The rows that compare eRPC with its peers, with made-up values of ours."""

from __future__ import annotations

from pyrdma.bench.benchmark import Better
from pyrdma.systems.erpc import bench_peers
from pyrdma.systems.erpc.benchmarks import benchmarks


def test_rows_stand_beside_their_peers() -> None:
    rows = bench_peers.benchmarks(lambda: 1.0, lambda: 2.0, lambda: 3.0, lambda: 4.0)
    found = {r.name: (r.ours(), r.unit, r.better, r.peer.name if r.peer else None) for r in rows}
    assert found == {
        "erpc/rpc_rate": (1.0, "op/s", Better.HIGHER, "UCX"),
        "erpc/rpc_rate_grpc": (1.0, "op/s", Better.HIGHER, "gRPC"),
        "erpc/rpc_latency": (2.0, "us", Better.LOWER, "UCX"),
        "erpc/rpc_latency_grpc": (2.0, "us", Better.LOWER, "gRPC"),
        "erpc/bandwidth_8mib": (3.0, "byte/s", Better.HIGHER, "memcpy"),
        "erpc/raft_put": (4.0, "us", Better.LOWER, "etcd"),
    }


def test_the_last_row_is_of_node_programs() -> None:
    row = benchmarks()[-1]
    assert (row.name, row.better, row.peer) == ("erpc/awaited_call", Better.HIGHER, None)
    assert row.ours() > 1000


def test_a_copy_is_measured() -> None:
    assert 1e8 < bench_peers.memcpy_bandwidth(0.05) < 1e12
