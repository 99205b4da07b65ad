"""A store that replicates its log by one-sided writes, after the Tailwind paper and RAMCloud.

A `Store` has its servers on the first nodes of a cluster and its coordinator on the next one.

>>> import pyrdma as rd
>>> with rd.Cluster.sim(nodes=6, profile="r320", seed=1) as cluster:
...     store = rd.tailwind.Store(cluster, replicas=3, log_bytes=16 << 20)
...     version = store.write(b"altitude", b"10,000 ft")
...     store.read(b"altitude")
b'10,000 ft'

A script kills a server, and sees what its recovery took:

>>> with rd.Cluster.sim(nodes=6, profile="r320", seed=1) as cluster:
...     store = rd.tailwind.Store(cluster, replicas=3, log_bytes=16 << 20)
...     store.fill(1000, value_bytes=100, primary=0)
...     crash = store.crash(0)
...     crash.recovery.objects
1000

The workload `pyrdma.workload.TailwindStore` loads a store with native clients.

Errors: `pyrdma.InvalidArgument` for a value out of its bounds; `pyrdma.Timeout` when a server or
the coordinator does not answer; `pyrdma.Exhausted` when a log is full. The error names the node.
"""

from . import recovery, store
from .recovery import *  # noqa: F403
from .store import *  # noqa: F403

__all__ = [*recovery.__all__, *store.__all__]
