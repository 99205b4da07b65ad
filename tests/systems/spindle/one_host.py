"""A program for a Soft-RoCE guest: a group under load, a topic, a member that is killed."""

from __future__ import annotations

import sys
import time

import pyrdma as rd


def loads(fabric: str) -> None:
    """Run loads on three nodes; each fails natively if a message is out of order or damaged."""
    with rd.Cluster.local(nodes=3, fabric=fabric, mode="process") as cluster:
        for preset in ("baseline", "paper", "best"):
            load = rd.workload.Multicast(
                preset=preset, messages=60, max_message=2048, window=16, suspicion_timeout_ns=10**11
            )
            result = cluster.run(load, timeout_s=600)
            print(f"{preset}: {result.value('message_rate'):.0f} messages/s", flush=True)
        topic = rd.workload.SpindleDds(
            qos="logged", samples=60, max_message=2048, window=16, suspicion_timeout_ns=10**11
        )
        print(f"logged: {cluster.run(topic, timeout_s=600).value('message_rate'):.0f}", flush=True)


def killed(fabric: str) -> None:
    """The others go on in a new view when a member dies."""
    with rd.Cluster.local(nodes=3, fabric=fabric, mode="thread") as cluster:
        group = rd.spindle.Group(cluster, suspicion_timeout_s=5.0)
        group.send([b"%d" % i for i in range(20)], node=0)
        group.send(b"last of 1", node=1)
        cluster.kill(1)
        began = time.monotonic()
        group.send(b"after", node=2, timeout_s=120)
        sent = [b"%d" % i for i in range(20)]
        found: list[bytes] = []
        # Turns go round the members, so that node 2's message may stand between those of node 0.
        while not {b"after", *sent} <= set(found) and time.monotonic() < began + 120:
            found += [m.data for m in group.receive(node=0, timeout_s=1)]
        where = [group.standing(node) for node in (0, 2)]
        assert found.count(b"after") == 1, f"{found}, {where}, {group.events()}"
        assert [d for d in found if d.isdigit()] == sent, f"{found}, {where}, {group.events()}"
        print(f"killed member: the others went on after {time.monotonic() - began:.1f} s")


def main(fabric: str = "verbs") -> None:
    """Run all."""
    loads(fabric)
    killed(fabric)
    print("all good")


if __name__ == "__main__":
    main(*sys.argv[1:])
