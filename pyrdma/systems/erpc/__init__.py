"""eRPC's remote procedure calls over unreliable datagrams.

A `Mesh` names the endpoints of a cluster: one per thread of each node, with the protocol's preset.
Workloads make the endpoints on every node and put them under load with native loops.

>>> import pyrdma as rd
>>> with rd.Cluster.sim(nodes=4, profile="cx4", seed=1) as cluster:
...     rpc = rd.erpc.Mesh(cluster, threads=1, preset="paper")
...     load = rd.workload.ErpcLoad(rpc, request=32, response=32, batch=3, in_flight=60)
...     latency = cluster.run(load, duration_s=0.0001).latency("rpc")
...     latency.count > 100
True

Scripts serve and call through the same mesh:

>>> with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
...     rpc = rd.erpc.Mesh(cluster)
...     rpc.serve(1, 7, rd.erpc.Echo())
...     rpc.connect(node=0, to=1).call(7, b"hello")
b'hello'

Errors: `pyrdma.InvalidArgument` for a value out of its bounds; `pyrdma.Timeout` and
`pyrdma.Unavailable` when a node does not take part or dies; `RpcFailed` for a script's request that
ends without its response. The error names the node.
"""

from .mesh import *  # noqa: F403
from .mesh import __all__ as __all__
