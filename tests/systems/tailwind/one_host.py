"""A program for a Soft-RoCE guest: a store under load, and a server that is killed."""

from __future__ import annotations

import sys
import time

import pyrdma as rd
from pyrdma import check


def loads(fabric: str) -> None:
    """Run loads of two servers, and judge what their client saw."""
    with rd.Cluster.local(nodes=4, fabric=fabric, mode="thread") as cluster:
        for replication in ("ramcloud", "tailwind"):
            for durability in ("completion", "flush"):
                load = rd.workload.TailwindStore(
                    servers=2,
                    replicas=1,
                    workers=0,
                    replication=replication,
                    durability=durability,
                    keys=50,
                    log_bytes=16 << 20,
                    segment_bytes=1 << 20,
                    reads=0.5,
                    in_flight=4,
                    iterations=100,
                    lease_ms=600_000,
                    history=True,
                )
                result = cluster.run(load, duration_s=300, timeout_s=600)
                verdict = check.check(result.history())
                assert verdict.ok, verdict.text
                print(f"{replication}, {durability}: {result.value('rate'):.0f} op/s", flush=True)


def killed(fabric: str) -> None:
    """The others recover what a dead server had, and replace the replicas that it held."""
    with rd.Cluster.local(nodes=5, fabric=fabric, mode="thread") as cluster:
        store = rd.tailwind.Store(
            cluster,
            replicas=2,
            workers=0,
            log_bytes=16 << 20,
            segment_bytes=1 << 20,
            lease_s=5.0,
            timeout_s=120.0,
        )
        values = {b"key %d" % i: b"value %d" % i for i in range(20)}
        for key, value in values.items():
            store.write(key, value)
        began = time.monotonic()
        store.crash(1, timeout_s=120)
        assert {key: store.read(key) for key in values} == values
        print(f"killed server: its objects were back after {time.monotonic() - began:.1f} s")


def main(fabric: str = "verbs") -> None:
    """Run all."""
    loads(fabric)
    killed(fabric)
    print("all good")


if __name__ == "__main__":
    main(*sys.argv[1:])
