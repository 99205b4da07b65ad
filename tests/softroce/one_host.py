"""A program for a guest: clusters over its device, a killed node."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import devices, verbs, workload
from pyrdma.processes import ProcessCluster


def say(text: str) -> None:
    print(f"{time.monotonic():.1f} {text}", flush=True)


def loads_run(cluster: rd.Cluster) -> None:
    for op in ("read", "write", "send", "fetch_add"):
        load = workload.VerbsLoad(op=op, size=8, mode="latency")
        result = cluster.run(load, duration_s=0.1)
        assert result.fabric == "verbs"
        assert result.latency(op).count > 10, op
        say(f"{op}: median {result.latency(op).percentile(50) / 1e3:.0f} us")


def processes_run_and_one_that_is_killed_is_a_clear_error() -> None:
    with rd.Cluster.local(nodes=2, fabric="verbs") as cluster:
        assert isinstance(cluster, ProcessCluster)
        loads_run(cluster)
        victim = cluster.process_ids[0]
        threading.Timer(2.0, os.kill, (victim, signal.SIGKILL)).start()
        start = time.monotonic()
        with pytest.raises(rd.Error) as caught:
            cluster.run(workload.VerbsLoad(op="write", size=8), duration_s=30.0)
        assert "SIGKILL" in str(caught.value)
        took = time.monotonic() - start
        say(f"after {took:.1f} s: {caught.value}")
        assert took < 12.0


def one(queue: Any) -> Any:
    done = queue.poll(max=1, timeout_s=10.0, check=False)
    assert len(done) == 1, "no completion"
    return done[0]


def peers_that_go_away() -> None:
    with rd.Cluster.local(nodes=2, fabric="verbs", mode="thread") as cluster:
        for way in ("close", "error"):
            ends = []
            for device in cluster.devices:
                domain = device.protection_domain()
                queue = device.completion_queue(64)
                region = domain.allocate(4096, verbs.LOCAL_WRITE | verbs.REMOTE_WRITE)
                ends.append((queue, region, domain.queue_pair(queue)))
            (queue, region, pair), (_, there, other) = ends
            pair.connect(other.address)
            other.connect(pair.address)
            pair.post([verbs.write(region.sge(0, 8), there.remote, 0)])
            assert one(queue)["status"] == verbs.Status.SUCCESS
            if way == "close":
                other.close()
            else:
                other.modify(verbs.QpState.ERROR)
            pair.post([verbs.write(region.sge(0, 8), there.remote, 0, wr_id=n) for n in (1, 2)])
            first, second = one(queue), one(queue)
            assert first["wr_id"] == 1
            assert first["status"] == verbs.Status.RETRY_EXCEEDED, (way, first)
            assert second["status"] == verbs.Status.FLUSHED, (way, second)
            assert pair.state == verbs.QpState.ERROR
            say(f"{way}: retry exceeded, then flushed")


def devices_are_known() -> None:
    chosen = devices.choose()
    assert chosen["device"] == "rxe0"
    assert chosen["address"] == "10.99.0.1"
    assert devices.choose(devices.Wish.parse("10.99.0.1"))["gid_index"] == chosen["gid_index"]
    assert {entry.type for entry in devices.entries()} == {"RoCE v2"}
    with pytest.raises(rd.Unavailable) as caught:
        devices.choose(devices.Wish("rxe7"))
    assert all(name in str(caught.value) for name in ("rxe7", "rxe0"))


if __name__ == "__main__":
    devices_are_known()
    peers_that_go_away()
    with rd.Cluster.local(nodes=2, fabric="verbs", mode="thread") as threads:
        loads_run(threads)
    processes_run_and_one_that_is_killed_is_a_clear_error()
    say("all good")
