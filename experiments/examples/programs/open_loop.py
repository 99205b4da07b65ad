"""Latency over offered load, with requests that do not wait for earlier ones.

Run it: python experiments/examples/programs/open_loop.py [--out knee.png]

Requests arrive at random (Poisson), whether the server keeps up or not. The latency of each counts
from its intended arrival, so that time in the client's queue is part of it. A client that sends its
next request after the last reply would hide this time. Near the server's capacity the latency
leaves its plateau: the knee.
"""

import argparse

import numpy as np

import pyrdma as rd
from pyrdma.program import Node, Peer
from pyrdma.result import Latency

CLIENTS, REQUESTS, WORK_NS = 4, 500, 2000
START_NS = 20_000_000  # all clients are connected by then
LOADS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)


def run(load: float, seed: int) -> Latency:
    """Return the latency at a load, in parts of what ``WORK_NS`` allows."""

    async def server(node: Node) -> None:
        inbox = await node.bind("work")
        async for request in inbox:
            await node.work(ns=WORK_NS)
            await request.reply()

    async def call(node: Node, peer: Peer, arrival: int) -> None:
        await peer.call(b"x" * 32)
        node.record("rpc", node.now() - arrival)

    async def client(node: Node) -> None:
        peer = await node.connect("work", to=0)
        random = np.random.default_rng([seed, node.id])
        gaps = random.exponential(WORK_NS * CLIENTS / load, REQUESTS)
        calls = []
        for arrival in (START_NS + np.cumsum(gaps)).astype(int).tolist():
            await node.sleep(ns=max(0, arrival - node.now()))
            calls.append(node.spawn(call(node, peer, arrival)))
        for task in calls:
            await task

    with rd.Cluster.sim(nodes=1 + CLIENTS, profile="cx5", seed=seed, cores_per_node=64) as cluster:
        return cluster.program({0: server, "rest": client}).latency("rpc")


def knee(p99: dict[float, float], times: float = 5) -> float:
    """Return the last load before the 99th percentile exceeds `times` that of the lowest load."""
    return max(load for load in p99 if p99[load] <= times * p99[min(p99)])


def main() -> None:
    """Print the latency at each load, and draw it if asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", help="picture to write (needs matplotlib)")
    options = parser.parse_args()
    print("load  k requests/s  p50 us  p99 us")
    p50, p99 = {}, {}
    for load in LOADS:
        latency = run(load, seed=1)
        p50[load], p99[load] = (latency.percentile(p) / 1000 for p in (50, 99))
        print(f"{load:4.1f}  {load * 1e6 / WORK_NS:12.0f}  {p50[load]:6.1f}  {p99[load]:6.1f}")
    print(f"the knee: p99 is within 5 times its least up to load {knee(p99)}")
    if options.out:
        from matplotlib import pyplot as plt

        plt.semilogy(LOADS, list(p50.values()), LOADS, list(p99.values()), marker="o")
        plt.gca().set(xlabel="offered load / capacity", ylabel="latency (us)")
        plt.legend(["p50", "p99"])
        plt.savefig(options.out)


if __name__ == "__main__":
    main()
