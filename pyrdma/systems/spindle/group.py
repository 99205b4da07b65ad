"""Groups of a cluster's nodes, their subgroups, and what they deliver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import Self

from pyrdma.arguments import Between, checked
from pyrdma.cluster import Cluster
from pyrdma.errors import InvalidArgument, Unavailable
from pyrdma.result import Result
from pyrdma.systems.operation import PerNode, open_cluster, result_of, waits

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Group", "Message", "Subgroup", "Subscription"]

Preset = Literal["baseline", "batching", "batching+nulls", "paper", "best"]
"""Spindle's techniques: none (Derecho before it), then one more each, then ours."""
Window = Annotated[int, Between(1, 1 << 16)]
Bytes = Annotated[int, Between(1, 1 << 23)]
Wait = Annotated[float, Between(0.0, 1e6)]
"""Seconds of the fabric's clock."""


Number = Annotated[int, Between(0, 255)]
"""The number of a subgroup."""


def messages_of(data: bytes | Sequence[bytes]) -> list[bytes]:
    """Return one message, or several, as a list."""
    messages = [data] if isinstance(data, bytes) else list(data)
    if not messages:
        raise InvalidArgument("data is empty; give bytes, or a list of at least one message")
    return messages


@dataclass(frozen=True)
class Message:
    """A message as a member delivers it.

    Attributes
    ----------
    sender
        The node that sent it.
    view
        The view that delivered it.
    sequence
        Its place in the order of the view; nulls leave gaps.
    data
        Its bytes.
    """

    sender: int
    view: int
    sequence: int
    data: bytes


@checked
@dataclass(frozen=True)
class Subgroup:
    """Members of a group that deliver the same messages in the same order.

    Parameters
    ----------
    members
        Their nodes; empty: all.
    senders
        Those that may send; empty: all members.
    window
        Slots of each sender; a sender waits while all of them are in use.
    max_message
        Bytes of the longest message, and so of a slot.
    order
        ``total``: one order at all members, once all have the message (atomic multicast).
        ``unordered``: on receipt, in the order of each sender.
    """

    members: Sequence[int] = ()
    senders: Sequence[int] = ()
    window: Window = 100
    max_message: Bytes = 10_240
    order: Literal["total", "unordered"] = "total"


class Subscription:
    """A Python function that gets the messages of a subgroup at one node, in batches.

    A thread of Python calls it; `close` ends the thread after the batch under way. An exception of
    the function ends the subscription; `close` raises it.
    """

    def __init__(
        self, group: Group, node: int, subgroup: int, function: Callable[[list[Message]], None]
    ) -> None:
        self._stop = Event()
        self._error: BaseException | None = None

        def run() -> None:
            try:
                while not self._stop.is_set():
                    batch = group.receive(node=node, subgroup=subgroup, timeout_s=0.05)
                    if batch:
                        function(batch)
            except BaseException as error:
                self._error = error

        self._thread = Thread(
            target=run, name=f"spindle subscription {node}/{subgroup}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the subscription. Raises what the function raised."""
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


class Group(PerNode):
    """A group of a cluster's nodes: multicasts to subgroups, and views.

    Workloads take a group and form it anew on every node. A script sends and receives through
    further groups, one per node, whose predicates have threads of their own; they need a cluster in
    this process and are made at the first call.

    Parameters
    ----------
    cluster
        The cluster whose nodes take part; at most 64.
    preset
        The techniques of the protocol (Spindle, sections 3 and 4).
    window, max_message
        Of the only subgroup, without `subgroups`; see `Subgroup`.
    subgroups
        The subgroups, for scripts; without them one of all nodes.
    founders
        Nodes of the first view, for scripts; empty: all. The others `join` later.
    suspicion_timeout_s
        Silence after which a member is taken for dead, for scripts.
    """

    @checked
    def __init__(
        self,
        cluster: Cluster,
        preset: Preset = "best",
        window: Window = 100,
        max_message: Bytes = 10_240,
        *,
        subgroups: Sequence[Subgroup] = (),
        founders: Sequence[int] = (),
        suspicion_timeout_s: Annotated[float, Between(1e-4, 1e4)] = 0.5,
    ) -> None:
        super().__init__(cluster)
        self.preset = preset
        self.window = window
        self.max_message = max_message
        self.subgroups = tuple(subgroups) or (Subgroup(window=window, max_message=max_message),)
        self.founders = [self._node("founders", n) for n in founders] or list(range(cluster.nodes))
        self.suspicion_timeout_s = suspicion_timeout_s
        self._result: Result | None = None

    def _make(self, core: Any) -> Any:
        specs = [
            (list(s.members), list(s.senders), s.window, s.max_message, s.order == "total")
            for s in self.subgroups
        ]
        presets: list[str] = core.spindle.presets
        return core.spindle.Groups(
            open_cluster(self.cluster),
            presets.index(self.preset),
            specs,
            self.founders,
            self.suspicion_timeout_s,
        )

    def _subgroup(self, number: int) -> int:
        if not 0 <= number < len(self.subgroups):
            raise InvalidArgument(
                f"subgroup is {number}; the group's subgroups are 0 to {len(self.subgroups) - 1}"
            )
        return number

    @waits
    async def send(
        self,
        data: bytes | Sequence[bytes],
        *,
        node: int,
        subgroup: Number = 0,
        timeout_s: Wait = 10.0,
    ) -> None:
        """Multicast messages from `node`, in order; returns when the last one is queued.

        Parameters
        ----------
        data
            A message, or several.
        timeout_s
            Time to wait for free slots, in seconds of the fabric's clock.

        Raises
        ------
        InvalidArgument
            A message is longer than the subgroup's slots, or the node is no sender.
        Timeout
            The slots stay in use; the error names the member that lags, and how many were sent.
        Unavailable
            The node is no member: it has left, or the others go on without it.
        """
        messages = messages_of(data)
        most = self.subgroups[self._subgroup(subgroup)].max_message
        for message in messages:
            if len(message) > most:
                raise InvalidArgument(
                    f"a message of {len(message)} B; the slots of subgroup {subgroup} have {most}: "
                    "raise max_message"
                )
        await result_of(self._native.send(self._node("node", node), subgroup, messages, timeout_s))

    @waits
    async def receive(
        self,
        *,
        node: int,
        subgroup: Number = 0,
        most: Annotated[int, Between(1, 1 << 30)] = 1000,
        timeout_s: Wait = 10.0,
    ) -> list[Message]:
        """Return messages that `node` has delivered, oldest first; none after the time.

        Parameters
        ----------
        most
            Messages to return at most.
        timeout_s
            Time to wait for the first one, in seconds of the fabric's clock.
        """
        found = await result_of(
            self._native.receive(
                self._node("node", node), self._subgroup(subgroup), most, timeout_s
            )
        )
        return [Message(*each) for each in found]

    @checked
    def subscribe(
        self,
        function: Callable[[list[Message]], None],
        *,
        node: int,
        subgroup: Number = 0,
    ) -> Subscription:
        """Let a Python function get the messages of a subgroup at `node`, in batches.

        The simulator has no such threads: call `receive` there.
        """
        if self.cluster.clock == "virtual":
            raise Unavailable(
                "subscribe: a Python function takes no virtual time; call receive(node=...) in the "
                "simulator, or open the cluster with Cluster.local(nodes, fabric='shm', "
                "mode='thread')"
            )
        self.standing(node)  # forms the group here, not in the subscription's thread
        return Subscription(self, node, self._subgroup(subgroup), function)

    @waits
    async def standing(self, node: int) -> str:
        """Return ``outside``, ``member``, ``left`` or ``excluded``."""
        found: str = await result_of(self._native.standing(self._node("node", node)))
        return found

    @waits
    async def join(self, node: int) -> None:
        """Let `node` join through the others. Raises `pyrdma.Timeout` if no view takes it in."""
        others = [n for n in range(self.cluster.nodes) if n != node]
        await result_of(self._native.join(self._node("node", node), others))

    @waits
    async def leave(self, node: int, *, timeout_s: Wait = 10.0) -> None:
        """Let `node` leave in good order: the others deliver what it has sent."""
        await result_of(self._native.leave(self._node("node", node), timeout_s))

    @checked
    def counters(self) -> DataFrame:
        """Return what the group has done, by node: columns node, counter, value, unit.

        After a workload these are the counters of its last run.
        """
        import pandas as pd

        if self._result is not None:
            rows = [(s.node, s.metric, s.value, s.unit) for s in self._result.samples]
        else:
            rows = [
                (node, f"{name}/{g}" if len(self.subgroups) > 1 else name, float(value), unit)
                for node in range(self.cluster.nodes)
                for g, name, value, unit in self._native.counters(node)[0]
            ]
        return pd.DataFrame(rows, columns=["node", "counter", "value", "unit"])

    @checked
    def table(self, *, node: int, subgroup: Number = 0) -> DataFrame:
        """Return a subgroup's rows of the shared state table as `node` sees them (section 2.2).

        Columns: ``member``, a node; ``sent``, the rounds that it has given to messages and nulls
        (missing for no sender); ``received`` and ``delivered``, in the order of the subgroup. All
        are counts, one more than the numbers of the paper's table 1.
        """
        import pandas as pd

        rows = [
            (member, sent if is_sender else None, received, delivered)
            for member, is_sender, sent, received, delivered in self._native.table(
                self._node("node", node), self._subgroup(subgroup)
            )
        ]
        frame = pd.DataFrame(rows, columns=["member", "sent", "received", "delivered"])
        return frame.astype({"sent": "Int64"})

    @checked
    def batch_sizes(self) -> DataFrame:
        """Return how often a batch had each size: node, subgroup, stage, messages, batches.

        Stages are ``send``, ``receive`` and ``delivery`` (Spindle, section 3.2).
        """
        import pandas as pd

        rows = [
            (node, *row)
            for node in range(self.cluster.nodes)
            for row in self._native.counters(node)[1]
        ]
        return pd.DataFrame(rows, columns=["node", "subgroup", "stage", "messages", "batches"])

    @checked
    def events(self) -> DataFrame:
        """Return the views that the nodes have entered: node, time_ns, view, members."""
        import pandas as pd

        rows = [
            (node, time, view, tuple(members))
            for node in range(self.cluster.nodes)
            for time, view, members in self._native.events(node)
        ]
        return pd.DataFrame(rows, columns=["node", "time_ns", "view", "members"])

    def __repr__(self) -> str:
        return (
            f"Group(preset={self.preset!r}, window={self.window}, max_message={self.max_message})"
        )
