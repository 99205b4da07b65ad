"""LOCO's channel objects, from a script: named objects whose state lies across the nodes.

A channel is made for all nodes of a cluster at once. Its methods take the node that acts. They
take virtual time in a simulated cluster and real time over shared memory. A workload puts a
channel under load: its loops are native.

>>> import pyrdma as rd
>>> with rd.Cluster.sim(nodes=3, profile="c6525-25g", seed=1) as cluster:
...     counter = rd.loco.AtomicVar(cluster, "counter", host=0)
...     lock = rd.loco.TicketLock(cluster, "lock")
...     for node in range(3):
...         with lock.held(node):
...             before = counter.fetch_add(1, node=node)
...     counter.load(node=2)
3

A channel of a cluster whose nodes are other processes describes the channel to workloads. A script
that uses it gets `pyrdma.Unavailable`.

Errors: `pyrdma.InvalidArgument` for misuse (a name that is taken, an offset out of bounds, an
unlock by a node that does not hold the lock), `pyrdma.Timeout` when nodes do not do their part,
`pyrdma.Unavailable` when a node does not answer; the error names the node.
"""

from .channels import (
    AtomicVar,
    Barrier,
    Channel,
    KvStore,
    OwnedVar,
    Preset,
    SharedQueue,
    SharedRegion,
    TicketLock,
)

__all__ = [
    "AtomicVar",
    "Barrier",
    "Channel",
    "KvStore",
    "OwnedVar",
    "Preset",
    "SharedQueue",
    "SharedRegion",
    "TicketLock",
]
