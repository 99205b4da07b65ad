"""Spindle's atomic multicast: groups, subgroups and views, after Derecho and the Spindle paper.

A `Group` names the members of a cluster and their protocol. Workloads make the group on every node
and stream messages through it with native loops.

>>> import pyrdma as rd
>>> with rd.Cluster.sim(nodes=3, profile="spindle", seed=1) as cluster:
...     group = rd.spindle.Group(cluster, preset="paper", window=100, max_message=10_240)
...     result = cluster.run(rd.workload.Multicast(group, senders="all", messages=200))
...     result.value("delivered_bandwidth") > 1e9
True

Scripts send and receive through the same group, in subgroups, while nodes die, leave and join:

>>> with rd.Cluster.sim(nodes=3, profile="spindle", seed=1) as cluster:
...     group = rd.spindle.Group(cluster, founders=[0, 1])
...     group.join(2)
...     group.send([b"one", b"two"], node=2)
...     [message.data for message in group.receive(node=0)]
[b'one', b'two']

A `Domain` is a data distribution service on a group: topics with four qualities of service.

>>> with rd.Cluster.sim(nodes=3, profile="spindle", seed=1) as cluster:
...     topic = rd.spindle.Topic("altitude", publishers=[0], subscribers=[1, 2], quality="logged")
...     domain = rd.spindle.Domain(cluster, [topic])
...     domain.publish("altitude", b"10,000 ft", node=0)
...     domain.take("altitude", node=2)
[Sample(publisher=0, number=0, data=b'10,000 ft')]

Errors: `pyrdma.InvalidArgument` for a value out of its bounds; `pyrdma.Timeout` when a node does
not take part or lags; `pyrdma.Unavailable` when a node is no member. The error names the node.
"""

from . import domain, group
from .domain import *  # noqa: F403
from .group import *  # noqa: F403

__all__ = [*domain.__all__, *group.__all__]
