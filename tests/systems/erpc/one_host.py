"""A program for a Soft-RoCE guest: RPCs, lost packets, a dead server, Raft."""

from __future__ import annotations

import sys
import time
from typing import Any

import pyrdma as rd
from pyrdma import workload
from pyrdma.check import check

# A guest is emulated: a thread may stop for longer than any timeout between machines.
PATIENT: dict[str, Any] = {
    "warmup_ns": 0,
    "failure_timeout_ns": 30_000_000_000,
    "retransmission_timeout_ns": 200_000_000,
    "congestion_control": "none",
}
# More packets under way than a server has receives: some find none, and are lost.
LOSSY = {"overcommit": "on", "receive_entries": 8, "credits": 8, "sessions": 4, "in_flight": 8}


def say(name: str, result: Any, latency: str) -> None:
    found = result.latency(latency)
    assert found.count > 3, name
    print(f"{name}: {found.count}, median {found.percentile(50) / 1e3:.0f} us", flush=True)


def loads(fabric: str) -> None:
    """Run loads on three nodes; each fails natively if a response is not that of its request."""
    with rd.Cluster.local(nodes=3, fabric=fabric, mode="process") as cluster:
        echo = workload.ErpcLoad(batch=3, in_flight=12, iterations=100, **PATIENT)
        say("echo", cluster.run(echo), "rpc")
        settings = {**PATIENT, **LOSSY, "retransmission_timeout_ns": 5_000_000}
        long = workload.ErpcLoad(request=1 << 20, iterations=4, **settings)
        result = cluster.run(long)
        say("1 MiB with loss", result, "rpc")
        assert result.value("retransmissions") > 0


def dead_server(fabric: str) -> None:
    """A call to a server that dies ends, with an error that names it."""
    with rd.Cluster.local(nodes=3, fabric=fabric, mode="thread") as cluster:
        rpc = rd.erpc.Mesh(cluster, workers=1)
        for server in (1, 2):
            rpc.serve(server, 1, rd.erpc.Echo())
        rpc.serve(1, 2, lambda request: request[::-1])
        dies, lives = (rpc.connect(node=0, to=server) for server in (1, 2))
        assert dies.call(1, b"abc") + dies.call(2, b"abc") == b"abccba"
        cluster.kill(1)
        began = time.monotonic()
        lost = None
        while lost is None and time.monotonic() < began + 60:  # it may still answer for a while
            (reply,) = dies.calls(1, [b"abc"], timeout_s=60, return_errors=True)
            lost = reply if isinstance(reply, rd.erpc.RpcFailed) else None
        assert lost is not None
        assert lost.outcome == "session lost"
        assert lost.nodes == (1,)
        print(f"killed server: noticed after {time.monotonic() - began:.1f} s", flush=True)
        assert lives.call(1, b"on") == b"on"


def replicated(fabric: str) -> None:
    """Put and get in a store of three members; the history is linearizable."""
    with rd.Cluster.local(nodes=4, fabric=fabric, mode="process") as cluster:
        store = workload.ErpcRaft(
            reads=0.5,
            keys=5,
            iterations=50,
            history=True,
            election_timeout_ns=3_000_000_000,
            heartbeat_ns=300_000_000,
            try_timeout_ns=3_000_000_000,
            **PATIENT,
        )
        result = cluster.run(store)
        say("replicated put", result, "put")
        verdict = check(result.history())
        assert verdict.ok, verdict.text


def main(fabric: str = "verbs") -> None:
    """Run all."""
    loads(fabric)
    dead_server(fabric)
    replicated(fabric)
    print("all good")


if __name__ == "__main__":
    main(*sys.argv[1:])
