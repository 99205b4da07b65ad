"""A cluster whose nodes are processes on the hosts of a testbed."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

from pyrdma._node_process import NodeHandle
from pyrdma._sent import sources_of
from pyrdma._workload import Parameters
from pyrdma.cluster_base import Columns
from pyrdma.conditions import UNKNOWN_NS, Conditions
from pyrdma.errors import Error, HostLost, InvalidArgument
from pyrdma.processes import ProcessCluster
from pyrdma.result import Result

from . import facts
from ._node import RemoteNode
from .clocks import HostClocks
from .fleet import Fleet
from .host import Host

__all__ = ["RemoteProcessCluster"]


class RemoteProcessCluster(ProcessCluster):
    """Nodes as processes on hosts; see `Cluster.remote`.

    Over ``verbs`` the hosts take turns in holding nodes. A run whose RDMA traffic went over the
    login network raises an `Error`. Over ``shm`` all nodes are on one host, the fleet's only one.
    """

    _on_this_machine = False

    def __init__(
        self,
        fleet: Fleet,
        nodes: int,
        seed: int,
        fabric: str,
        faults: Mapping[str, float] | None = None,
        owned: bool = False,
    ) -> None:
        self.fabric = fabric
        self._fleet = fleet
        self._owned = owned
        if fabric == "shm":
            if len(fleet.hosts) != 1:
                raise InvalidArgument(
                    f"fabric 'shm' does not span machines, and there are {len(fleet.hosts)} hosts; "
                    "give one (hosts=...), or take fabric 'verbs'"
                )
            fleet.require()
            self._places = [fleet.hosts[0]] * nodes
        else:
            self._places = fleet.place(nodes)
            first = self._places[0]
            if len(set(self._places)) > 1 and not first.entry.address:
                raise InvalidArgument(
                    f"host {first.name} has no pyrdma_address, at which the other hosts reach it "
                    "on the experiment network; add it to the inventory"
                )
        self._used = list(dict.fromkeys(self._places))
        self._clocks: HostClocks | None = None
        self._counters: list[Any] = []
        self.conditions = Conditions()
        try:
            if fabric == "verbs":
                self._clocks = HostClocks(self._used)
                self._counters = self._count()
            super().__init__(nodes, seed, faults)
        except BaseException:
            if owned:
                fleet.close()
            raise

    # --- nodes ------------------------------------------------------------------------------------

    def _new_session(self) -> Any:
        first = self._used[0]
        return _Session(first, self.fabric, self.nodes, self.seed, first.entry.address)

    def _start(self, number: int) -> NodeHandle:
        return self._places[number].start_node(number)

    def _attach(self, node: NodeHandle) -> None:
        assert isinstance(node, RemoteNode)
        if self.fabric == "shm":
            super()._attach(node)
            return
        assert self._clocks is not None
        node.send(
            {
                "kind": "attach_host",
                "session": self._session.name,
                "token": self._session.token,
                "node": node.number,
                "nodes": self.nodes,
                **asdict(node.host.entry.wish),
                "clock": self._clocks.parts(node.host),
                "neighbours": self._places.count(node.host) - 1,
            }
        )

    def _result(self, parameters: Parameters, columns: Columns) -> Result:
        result = super()._result(parameters, columns)
        if self.fabric == "verbs":
            self._check_counters()
            result = self.conditions.judge(result, self._bound_ns())
        return result

    def _sources(self, addresses: Mapping[int, dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
        of_files = {file: sources_of(file) for file in {a["file"] for a in addresses.values()}}
        for address in addresses.values():
            address["sent"] = True
        return {node: of_files[address["file"]] for node, address in addresses.items()}

    def _bound_ns(self) -> int:
        """Return the bound of the clocks' error; that of no clock if they cannot be compared."""
        assert self._clocks is not None
        try:
            return self._clocks.bound_ns()
        except HostLost:
            raise
        except Error:  # the measurement stands; only its one-way times are worth nothing
            self.conditions.flag("clocks unknown")
            return UNKNOWN_NS

    def close(self) -> None:
        """End all node processes and the session. Idempotent."""
        super().close()
        if self._owned:
            self._fleet.close()

    # --- conditions of the run --------------------------------------------------------------------

    def _count(self) -> list[Any]:
        asked = [host.ask("counters") for host in self._used]
        return [h.wait(future, "counters") for h, future in zip(self._used, asked, strict=True)]

    def _check_counters(self) -> None:
        """Note what the ports counted during the run; fail if it used the login network."""
        before, self._counters = self._counters, self._count()
        for host, early, late in zip(self._used, before, self._counters, strict=True):
            login = set(late["login"].split(",")) - {""}
            for port, risen in facts.increase(early, late).items():
                if risen.keys() & facts.LOST:
                    self.conditions.flag("retransmit")
                if risen.keys() & facts.NOT_READY:
                    self.conditions.flag("receiver not ready")
                sent = facts.sent_bytes(risen)
                if port not in login or not sent:
                    continue
                if host.entry.wish.device == port.split("/")[0]:  # the inventory names it
                    self.conditions.flag("login network")
                    continue
                raise Error(
                    f"the run sent {sent} bytes of RDMA over the login network, by {port} of host "
                    f"{host.name}; give pyrdma_address or pyrdma_device of the experiment network"
                )


class _Session:
    """A session that the daemon of a host keeps."""

    def __init__(self, host: Host, fabric: str, nodes: int, seed: int, address: str) -> None:
        self._host = host
        place = {"fabric": fabric, "nodes": nodes, "seed": seed, "address": address}
        asked = host.ask("open_session", **place)
        try:
            found = host.wait(asked, "open_session")
        except BaseException:  # such as Ctrl-C
            asked.add_done_callback(self._close_late)
            raise
        number, name, token = found["session"], found["name"], found["token"]
        self._where = {"session": int(number)}
        self.name = str(name)
        seal = host.channel.seal if host.channel is not None else None
        self.token = seal.hide(token, f"session {number}") if seal is not None else str(token)

    def _close_late(self, opened: Future[Any]) -> None:
        """End a session that the daemon has opened after all."""
        if opened.exception() is None:
            self._host.tell("close_session", session=opened.result()["session"])

    @property
    def now_ns(self) -> int:
        return int(self._host.call("now", **self._where))

    def incarnation(self, node: int) -> int:
        return int(self._host.call("incarnation", **self._where, node=node))

    def end(self, node: int) -> None:
        self._host.call("forget", **self._where, node=node)

    def close(self) -> None:
        self._host.tell("close_session", **self._where)
