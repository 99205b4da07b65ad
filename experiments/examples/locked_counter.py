"""A counter that every node reads, adds one to and writes back, with and without a lock.

Run it: python experiments/examples/locked_counter.py

Without the lock, the calls of the nodes interleave: all of them read the counter before the first
one writes it, so all but one of their increments are lost. The lock keeps a node's read and write
together, and none is lost. A workload then has the threads of all nodes contend for such a lock.
"""

import pyrdma as rd

NODES, ROUNDS = 3, 50


class Counter:
    """A number in the memory of node 0."""

    def __init__(self, cluster: rd.Cluster, name: str) -> None:
        self.region = rd.loco.SharedRegion(cluster, name, size=8)

    def read(self, node: int) -> int:
        """Return the number, as `node` reads it."""
        return int.from_bytes(self.region.read(8, node=node, of=0), "little")

    def write(self, value: int, node: int) -> None:
        """Write the number from `node`."""
        self.region.write(value.to_bytes(8, "little"), node=node, to=0)


with rd.Cluster.sim(nodes=NODES, profile="c6525-25g", memory="weak", seed=1) as cluster:
    unprotected = Counter(cluster, "unprotected")
    for _ in range(ROUNDS):
        values = [unprotected.read(node) for node in range(NODES)]
        for node in range(NODES):
            unprotected.write(values[node] + 1, node)

    protected = Counter(cluster, "protected")
    lock = rd.loco.TicketLock(cluster, "lock")
    for _ in range(ROUNDS):
        for node in range(NODES):
            with lock.held(node):
                protected.write(protected.read(node) + 1, node)

    made = NODES * ROUNDS
    # Two threads of each node at once; the run fails if an increment is lost.
    load = rd.workload.LocoLock(threads=2)
    contended = cluster.run(load, duration_s=0.001).latency("critical_section").count
    lost = {c.region.name: made - c.read(node=1) for c in (unprotected, protected)}

without, held = lost["unprotected"], lost["protected"]
print(f"of {made} increments {without} are lost without the lock, and {held} with it")
print(f"{contended} increments by {2 * NODES} threads at once under a lock, none lost")
if held:
    raise SystemExit("the lock did not protect the counter")
