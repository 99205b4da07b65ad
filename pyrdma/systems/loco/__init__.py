"""LOCO's channel objects for scripts: named objects whose state lies on all nodes.

A constructor makes a channel for all nodes of a cluster at once. Its methods take the node that
acts. They take virtual time in a simulated cluster and real time over shared memory. Workloads put
channels under load with native loops.

>>> import pyrdma as rd
>>> with rd.Cluster.sim(nodes=3, profile="c6525-25g", seed=1) as cluster:
...     counter = rd.loco.AtomicVar(cluster, "counter", host=0)
...     lock = rd.loco.TicketLock(cluster, "lock")
...     for node in range(3):
...         with lock.held(node):
...             before = counter.fetch_add(1, node=node)
...     counter.load(node=2)
3

If the nodes of a cluster are other processes, a channel only describes itself to workloads. A
script that calls its methods gets `pyrdma.Unavailable`.

Errors: `pyrdma.InvalidArgument` for misuse (a name that is taken, an offset out of bounds, an
unlock by a node that does not hold the lock), `pyrdma.Timeout` when other nodes do not take part,
`pyrdma.Unavailable` when a node does not answer. The error names the node.
"""

from .channels import *  # noqa: F403
from .channels import __all__ as __all__
