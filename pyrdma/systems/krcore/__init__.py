"""A control plane that connects in microseconds, after the KRCore paper.

A `Service` has a part on each node of a cluster: the paper's kernel module. Applications use its
virtual queue pairs (`Vqp`), which share the queue pairs of the device.

>>> import pyrdma as rd
>>> with rd.Cluster.sim(nodes=3, profile="krcore", seed=1) as cluster:
...     service = rd.krcore.Service(cluster, meta_servers=[0])
...     inbox = service.app(node=2).vqp(bind=7)
...     vqp = service.app(node=1).vqp()
...     fast = vqp.connect(node=2, port=7) < 10_000  # ns
...     vqp.send(b"hello")
...     [(reply, message)] = inbox.pop_msgs()
>>> fast, message
(True, b'hello')

One-sided requests name a region that its owner has registered:

>>> with rd.Cluster.sim(nodes=3, profile="krcore", seed=1) as cluster:
...     service = rd.krcore.Service(cluster)
...     region = service.app(node=2).reg_mr(4096)
...     vqp = service.app(node=1).vqp()
...     ns = vqp.connect(node=2)
...     vqp.write(region, b"far memory")
...     vqp.read(region, 10)
b'far memory'

On real nodes `Service.listen` lets other processes of the same user take part: `attach` makes an
application there, through rings in shared memory.

The workloads `pyrdma.workload.KrcoreConnect`, `KrcoreMesh`, `KrcoreOneSided`, `KrcoreEcho` and
`KrcoreBatch` load a service with native clients.

Errors: `pyrdma.InvalidArgument` for a port that is bound, an unknown node, a second connect, a
region that has ended; `pyrdma.Unavailable` when no meta server and no peer answers;
`pyrdma.Exhausted` when a pool is used up; `pyrdma.Timeout` for a request that does not end.
"""

from . import service
from .service import *  # noqa: F403

__all__ = [*service.__all__]
