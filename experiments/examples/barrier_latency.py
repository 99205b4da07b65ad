"""Barrier latency on a simulated cluster (LOCO, figure 1b): a first script with channels.

Run it: python experiments/examples/barrier_latency.py
"""

import statistics

import pyrdma as rd

ROUNDS = 200

with rd.Cluster.sim(nodes=5, profile="c6525-25g", seed=1) as cluster:
    barrier = rd.loco.Barrier(cluster, "bar")
    latencies = [statistics.mean(barrier.wait()) for _ in range(ROUNDS)]

print(f"average latency: {statistics.mean(latencies) / 1000:.2f} us over {ROUNDS} rounds")
