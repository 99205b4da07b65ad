"""A counter that a lock protects: every node reads it, adds one and writes it back.

Run it: python experiments/examples/locked_counter.py

Without the lock increments are lost: other nodes write between the read and the write of a node.
"""

import pyrdma as rd

NODES, ROUNDS = 3, 50

with rd.Cluster.sim(nodes=NODES, profile="c6525-25g", memory="weak", seed=1) as cluster:
    lock = rd.loco.TicketLock(cluster, "lock")
    region = rd.loco.SharedRegion(cluster, "counter", size=8)
    for _ in range(ROUNDS):
        for node in range(NODES):
            with lock.held(node):
                value = int.from_bytes(region.read(8, node=node, of=0), "little")
                region.write((value + 1).to_bytes(8, "little"), node=node, to=0)
    total = int.from_bytes(region.read(8, node=1, of=0), "little")

print(f"{total} increments, {NODES * ROUNDS} expected")
if total != NODES * ROUNDS:
    raise SystemExit("the lock did not protect the counter")
