"""A data distribution service on groups: domains, topics, publishers and subscribers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pyrdma._native import native
from pyrdma.arguments import Between, checked, shown
from pyrdma.cluster import Cluster
from pyrdma.errors import InvalidArgument, nearest
from pyrdma.systems.operation import PerNode, open_cluster, result_of, waits

from .group import Bytes, Preset, Wait, Window, messages_of

__all__ = ["Domain", "Sample", "Topic"]

Quality = Literal["unordered", "atomic", "volatile", "logged"]
"""What a subscriber may rely on; each adds to the one before it (Spindle, section 4.6)."""
Count = Annotated[int, Between(1, 1 << 30)]


@dataclass(frozen=True)
class Sample:
    """A sample of a topic.

    Attributes
    ----------
    publisher
        The node that published it.
    number
        Its place among the samples of the subscriber.
    data
        Its bytes.
    """

    publisher: int
    number: int
    data: bytes


@checked
@dataclass(frozen=True)
class Topic:
    """A topic, and its quality of service.

    Parameters
    ----------
    name
        1 to 100 characters.
    publishers, subscribers
        Nodes; a node may be both.
    quality
        ``unordered``: samples come on receipt, in the order of each publisher. ``atomic``: all
        subscribers get the same samples in the same order. ``volatile``: subscribers also keep the
        last samples, and one that joins catches up. ``logged``: subscribers also append each sample
        to a file, from which a domain restarts.
    window
        Samples of a publisher under way.
    max_sample
        Bytes of the longest sample.
    history
        Samples that a subscriber keeps in memory.
    sync_every
        Samples after which a logged topic syncs its file; 0: at the end of a view, and by `sync`.
    """

    name: str
    publishers: Sequence[int]
    subscribers: Sequence[int]
    quality: Quality = "atomic"
    window: Window = 100
    max_sample: Bytes = 10_240
    history: Count = 1000
    sync_every: Annotated[int, Between(0, 1 << 30)] = 0


class Domain(PerNode):
    """A domain of a cluster's nodes: each node is a participant (OMG: ``DomainParticipant``).

    Needs a cluster in this process.

    Parameters
    ----------
    cluster
        The cluster whose nodes take part; at most 64.
    topics
        The topics; 1 to 256.
    preset
        The techniques of the multicast (Spindle, sections 3 and 4).
    founders
        Nodes that begin the domain; empty: all but the clients. The others `join` later.
    clients
        Nodes outside of the domain, without a role in a topic. They publish through a publisher of
        the topic, and through another one if that does not answer. A sample may then come twice,
        the second time after later ones of the client.
    restart
        Begin again from the logs that the nodes have on their disks: each node first gets the
        samples that its logs lack.
    cut_damage
        Cut a log that does not verify at the damage, instead of refusing it.
    suspicion_timeout_s
        Silence after which a node is taken for dead.
    """

    @checked
    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[Topic],
        preset: Preset = "best",
        *,
        founders: Sequence[int] = (),
        clients: Sequence[int] = (),
        restart: bool = False,
        cut_damage: bool = False,
        suspicion_timeout_s: Annotated[float, Between(1e-4, 1e4)] = 0.5,
    ) -> None:
        super().__init__(cluster)
        self.topics = tuple(topics)
        if not 1 <= len(self.topics) <= 256:
            raise InvalidArgument(f"{len(self.topics)} topics; give 1 to 256")
        self.clients = tuple(self._node("clients", n) for n in clients)
        for topic in self.topics:
            for role in ("publishers", "subscribers"):
                for node in getattr(topic, role):
                    self._inside(f"{role} of topic {topic.name!r}", node)
        inside = [n for n in range(cluster.nodes) if n not in self.clients]
        core: Any = native()
        self._settings = (
            core.spindle.presets.index(preset),
            [self._tuple(topic, core.spindle.qualities) for topic in self.topics],
            [self._inside("founders", n) for n in founders] or inside,
            list(self.clients),
            suspicion_timeout_s,
            restart,
            cut_damage,
        )

    @staticmethod
    def _tuple(topic: Topic, qualities: list[str]) -> tuple[Any, ...]:
        quality = qualities.index(topic.quality)
        nodes = (list(topic.publishers), list(topic.subscribers))
        limits = (topic.window, topic.max_sample, topic.history, topic.sync_every)
        return (topic.name, quality, *nodes, *limits)

    def _make(self, core: Any) -> Any:
        return core.spindle.Domains(open_cluster(self.cluster), *self._settings)

    def _inside(self, name: str, node: int) -> int:
        if self._node(name, node) in self.clients:
            raise InvalidArgument(
                f"{name} is {node}, a client outside of the domain, which only publishes; the "
                f"clients are {list(self.clients)}"
            )
        return node

    def _topic(self, name: str, role: str, node: int) -> int:
        names = [topic.name for topic in self.topics]
        if name not in names:
            raise InvalidArgument(
                f"no topic {shown(name)}{nearest(name[:100], names)}; "
                f"the topics are {', '.join(names)}"
            )
        number = names.index(name)
        is_client = role == "publisher" and node in self.clients
        if not is_client and node not in getattr(self.topics[number], f"{role}s"):
            raise InvalidArgument(
                f"node {node} is no {role} of topic {name!r}; its {role}s are "
                f"{list(getattr(self.topics[number], f'{role}s'))}"
            )
        return number

    @waits
    async def publish(
        self, topic: str, data: bytes | Sequence[bytes], *, node: int, timeout_s: Wait = 10.0
    ) -> None:
        """Publish a sample, or several, from `node`.

        At a publisher it returns when the last one is queued. At a client it returns when all
        members of the topic have delivered them: the samples stay if any of these stays. Those of a
        logged topic are in each subscriber's file then, and with ``sync_every=1`` on its disk.

        Raises
        ------
        InvalidArgument
            A sample is too long, or the node is neither publisher nor client.
        Timeout
            The window stays full; the error names the node that lags, and how many were published.
            Or no publisher tells a client in time that all members have its sample, which they may.
        """
        number = self._topic(topic, "publisher", self._node("node", node))
        samples = messages_of(data)
        most = self.topics[number].max_sample
        for sample in samples:
            if len(sample) > most:
                raise InvalidArgument(
                    f"a sample of {len(sample)} B; topic {topic!r} takes {most}: raise max_sample"
                )
        await result_of(self._native.publish(node, number, samples, timeout_s))

    @waits
    async def take(
        self, topic: str, *, node: int, most: Count = 1000, timeout_s: Wait = 10.0
    ) -> list[Sample]:
        """Return new samples of a subscriber, oldest first; none after the time (OMG: ``take``)."""
        number = self._topic(topic, "subscriber", self._inside("node", node))
        found = await result_of(self._native.take(node, number, most, timeout_s))
        return [Sample(*each) for each in found]

    @waits
    async def read(
        self,
        topic: str,
        *,
        node: int,
        first: Annotated[int, Between(0, 1 << 62)] = 0,
        most: Count = 1000,
    ) -> list[Sample]:
        """Return stored samples of a volatile or logged topic, from number `first` on.

        A volatile topic has the last `Topic.history` samples, a logged one all.
        """
        number = self._topic(topic, "subscriber", self._inside("node", node))
        found = await result_of(self._native.read(node, number, first, most))
        return [Sample(*each) for each in found]

    @waits
    async def sync(self, node: int) -> None:
        """Make the logs of `node` durable."""
        await result_of(self._native.sync(self._inside("node", node)))

    @waits
    async def standing(self, node: int) -> str:
        """Return ``outside``, ``member``, ``left`` or ``excluded``."""
        found: str = await result_of(self._native.standing(self._inside("node", node)))
        return found

    @waits
    async def join(self, node: int) -> None:
        """Let `node` join; its subscribers of volatile and logged topics catch up first."""
        others = [n for n in range(self.cluster.nodes) if n not in (node, *self.clients)]
        await result_of(self._native.join(self._inside("node", node), others))

    @waits
    async def leave(self, node: int, *, timeout_s: Wait = 10.0) -> None:
        """Let `node` leave in good order."""
        await result_of(self._native.leave(self._inside("node", node), timeout_s))

    def __repr__(self) -> str:
        return f"Domain(topics={[topic.name for topic in self.topics]})"
