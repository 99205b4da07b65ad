"""Clusters: nodes simulated in this process, or real nodes on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from . import timeline as timelines
from ._native import native
from ._workload import Parameters
from .arguments import Between, FilePath, Seconds, Seed, checked, shown, whole
from .cluster_base import ClusterBase, Columns
from .devices import Wish
from .errors import InvalidArgument, Unavailable
from .fabrics import FabricName, check_faults, fabric_problem
from .hosts.cluster import RemoteProcessCluster
from .hosts.fleet import Fleet
from .processes import ProcessCluster
from .profiles import Profile
from .verbs_processes import VerbsProcessCluster

__all__ = ["Cluster"]


class Cluster(ClusterBase):
    """Nodes and the fabric between them.

    Use a cluster as a context manager: it then frees its resources at the end. `Cluster.sim` and
    `Cluster.local` make one. `ClusterBase` has the methods that all clusters share.
    """

    @staticmethod
    @checked
    def sim(
        nodes: Annotated[int, Between(1, 65536)],
        profile: FilePath | Profile,
        seed: Seed = 1,
        overrides: Mapping[str, float] | None = None,
        cores_per_node: Annotated[int, Between(1, 4096)] | None = None,
        memory: Literal["strong", "weak"] = "strong",
        faults: Mapping[str, float] | None = None,
        devices_per_node: Annotated[int, Between(1, 16)] = 1,
        variance: bool = False,
    ) -> SimulatedCluster:
        """Make a simulated cluster: virtual time, equal results for equal seeds.

        Parameters
        ----------
        nodes
            Number of nodes, 1 to 65536.
        profile
            Name (``cx5``), TOML file, or a loaded profile. It states what each step costs.
        overrides
            Profile values to change, such as ``{"link.rate_gbps": 100}``.
        cores_per_node
            Number of cores; the profile's if None. The threads of a node take turns on them.
        memory
            ``strong``: a write is placed whole, in order, before its completion. ``weak``: a write
            is placed late and in pieces, in all the ways that verbs permit. Test correctness with
            ``weak``.
        faults
            Faults to inject, such as ``{"loss": 0.01, "crash": 0.5, "heal_at_ns": 2e6}``; none if
            None. See `pyrdma.faults`.
        devices_per_node
            Number of RDMA devices of each node, 1 to 16, each with a link of its own. Queue pairs
            of two devices of a node may have equal numbers; see `devices_of` and `fail_device`.
        variance
            Let PCIe crossings, DRAM refresh, sockets and timer interrupts differ, as the profile's
            ``variance`` table says, so that high percentiles differ from the median. The draws
            follow from `seed`. Without it, equal operations take equal times, which suits tests.
            `Point.cluster` turns it on.

        Raises
        ------
        InvalidArgument
            A number is out of its range, or the profile is wrong.
        """
        if isinstance(profile, Profile):
            loaded = Profile.load(profile.path, {**profile.overrides, **(overrides or {})})
        else:
            loaded = Profile.load(profile, overrides)
        cores = cores_per_node or loaded.cores_per_node
        return SimulatedCluster(
            nodes, loaded, seed, cores, memory, faults or {}, devices_per_node, variance
        )

    @staticmethod
    @checked
    def local(
        nodes: Annotated[int, Between(1, 256)],
        fabric: FabricName = "shm",
        mode: Literal["process", "thread"] = "process",
        seed: Seed = 1,
        device: Wish | str = "",
        faults: Mapping[str, float] | None = None,
    ) -> Cluster:
        """Make a cluster of real nodes on this machine, in real time.

        Parameters
        ----------
        nodes
            Number of nodes, 1 to 256. More nodes than cores take turns.
        fabric
            ``shm``: memory that the nodes share; ``verbs``: a real RDMA device, loopback
            included.
        mode
            ``process``: each node is a process of its own; use it to measure. ``thread``: all
            nodes are threads of this process, and a script can use their devices.
        device
            With ``verbs``: the device, as a `devices.Wish` or as text (``mlx5_0:1:3``, or an
            IP address). pyrdma chooses one if it is empty.
        faults
            With ``shm``: faults to inject, such as ``{"loss": 0.01, "delay.max_ns": 1e6}``; none
            if None. The faults lose, duplicate, delay and corrupt datagrams, fill queues, corrupt
            requests, break queue pairs and exhaust memory in set-up; see `pyrdma.faults`.

        Raises
        ------
        Unavailable
            The fabric is missing; the message says what to install.
        """
        if fabric not in ("shm", "verbs"):
            raise InvalidArgument(
                f"fabric {fabric!r} has no local clusters; use fabric='shm' or 'verbs'"
            )
        wish = Wish.parse(device) if isinstance(device, str) else device
        if fabric == "shm" and wish != Wish():
            raise InvalidArgument(
                f"device is {shown(device)} with fabric 'shm', which has no devices"
            )
        problem = "" if wish.device else fabric_problem(fabric)
        if problem:
            raise Unavailable(f"fabric {fabric}: {problem}")
        check_faults(faults, fabric)
        if mode == "thread":
            return ThreadCluster(nodes, seed, fabric, wish, faults or {})
        if fabric == "verbs":
            return _VerbsProcesses(nodes, seed, wish)
        return _SharedMemoryProcesses(nodes, seed, faults or {})

    @staticmethod
    @checked
    def remote(
        inventory: FilePath | Fleet,
        nodes: Annotated[int, Between(1, 4096)],
        fabric: FabricName = "verbs",
        hosts: str | None = None,
        seed: Seed = 1,
        faults: Mapping[str, float] | None = None,
    ) -> Cluster:
        """Make a cluster of node processes on the hosts of a testbed, in real time.

        Hosts take turns in holding nodes, each up to its ``pyrdma_slots``. The nodes' clocks read
        on the scale of the first host.

        Parameters
        ----------
        inventory
            An Ansible inventory in YAML (``hosts.yml``), or a `Fleet`, whose connections then serve
            several clusters.
        nodes
            Number of nodes, 1 to 4096, and at most the hosts' slots.
        fabric
            ``verbs``, or ``shm`` with one host, which then holds all nodes.
        hosts
            Hosts to take, as ``'node-[0-3],!node-2'``; all if None.
        faults
            With ``shm``: faults to inject; see `Cluster.local`.

        Raises
        ------
        HostLost
            A host cannot be reached, or has other code than this program.
        Unavailable
            The hosts have too few slots, or a device is missing.
        """
        if fabric not in ("shm", "verbs"):
            raise InvalidArgument(
                f"fabric {fabric!r} needs no hosts; use fabric='shm' or 'verbs', or Cluster.sim"
            )
        check_faults(faults, fabric)
        if isinstance(inventory, Fleet):
            if hosts is not None:
                raise InvalidArgument(f"hosts={hosts!r} with a Fleet; give them to Fleet.open")
            return _RemoteProcesses(inventory, nodes, seed, fabric, faults or {})
        fleet = Fleet.open(inventory, hosts)
        return _RemoteProcesses(fleet, nodes, seed, fabric, faults or {}, owned=True)


def _nanoseconds(duration_s: float) -> int:
    return round(duration_s * 1e9)


class InProcess(Cluster):
    """A cluster whose nodes live in this process."""

    def __init__(self, nodes: int, seed: int, cluster: Any) -> None:
        super().__init__(nodes, seed)
        self._native = cluster

    def _run(
        self,
        name: str,
        parameters: Parameters,
        timeout_s: float,  # noqa: ARG002 - no node can hang alone here; Ctrl-C stops a run
    ) -> Columns:
        core: Any = native()
        return core.measure.run_workload(self._open, name, parameters)  # type: ignore[no-any-return]

    def _program(self, functions: Mapping[int, Any], **options: Any) -> Columns:
        core: Any = native()
        return core.program.run(self._open, functions, **options)  # type: ignore[no-any-return]

    @property
    def _open(self) -> Any:
        if self._native is None:
            raise InvalidArgument("the cluster is closed; make a new one")
        return self._native

    @property
    def devices(self) -> Sequence[Any]:
        """The first device of each node; see `pyrdma.verbs`."""
        return self._open.devices  # type: ignore[no-any-return]

    def devices_of(self, node: int) -> Sequence[Any]:
        """Return all devices of a node, by number. Only simulated nodes have several."""
        return self._open.devices_of(self._check_node(node))  # type: ignore[no-any-return]

    def kill(self, node: int) -> None:
        """End a node as by a loss of power; its peers get retry-exceeded and flushes."""
        self._open.kill(self._check_node(node))

    def close(self) -> None:
        """Free the native cluster. Arrays keep their memory. Idempotent."""
        if self._native is not None:
            self._native.close()  # refused while node programs run
            self._native = None


class SimulatedCluster(InProcess):
    """Nodes, NICs and a network in virtual time; see `Cluster.sim`."""

    fabric = "sim"
    clock = "virtual"

    def __init__(
        self,
        nodes: int,
        profile: Profile,
        seed: int,
        cores_per_node: int,
        memory: str,
        faults: Mapping[str, float],
        devices_per_node: int = 1,
        variance: bool = False,
    ) -> None:
        self.profile = profile
        self._devices = devices_per_node
        core: Any = native()
        cluster = core.sim.Cluster(
            nodes=nodes,
            cores_per_node=cores_per_node,
            profile=profile.values(),
            seed=seed,
            memory=memory,
            faults=dict(faults),
            devices_per_node=devices_per_node,
            variance=variance,
        )
        super().__init__(nodes, seed, cluster)
        self._timeline = timelines.begin(cluster)

    @checked
    def timeline(
        self,
        path: FilePath,
        window: str = "",
        limit: timelines.Limit = timelines.LIMIT,
    ) -> timelines.Timeline:
        """Record what happens from now on, as a file that Perfetto and chrome://tracing open.

        The end of its context, or of the cluster, writes the file::

            with cluster.timeline("out.json.gz", window="10us-20us"):
                cluster.run(load, duration_s=0.001)

        A node is a process, with a row for each thread and for each stage of its NIC. A request is
        a flow from its post to the poll of its completion. Faults are marks.

        Parameters
        ----------
        path
            The file, compressed if its name ends in ``.gz``.
        window
            Virtual time to record: ``10us-20us``, ``10us-``, ``-20us``, in ns, us, ms or s; or all.
        limit
            The most slices and marks to record. The first ones stay; the file says how many are
            left out. The arrows between slices come with them.

        Raises
        ------
        InvalidArgument
            The window is wrong, or a timeline is being recorded already.
        Error
            The file cannot be written.
        """
        self._timeline = timelines.Timeline(timelines.Options(path, window, limit), self._open)
        return self._timeline

    def close(self) -> None:
        """Free the native cluster. Arrays keep their memory. Idempotent."""
        try:
            if self._timeline is not None and self._native is not None:
                self._timeline.close()
        finally:
            super().close()

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return int(self._open.now_ns)

    def fault_counters(self) -> dict[str, tuple[int, int]]:
        """Return how often each fault fired, and how often it reached its target."""
        return dict(self._open.fault_counters())

    @checked
    def kill(
        self,
        node: int,
        crash: Literal["process", "host", "battery"] = "process",
        after_s: Seconds = 0,
    ) -> None:
        """End a node, now or later; its peers get retry-exceeded and flushes.

        Parameters
        ----------
        after_s
            Virtual time until the end, 0 for now. It passes in the calls that follow: a run of a
            workload sees the node die in its midst.
        crash
            ``process``: the machine stays up, and files are whole. ``host``: the machine loses
            power and all data that was not synced. ``battery``: the machine loses power; files and
            registered memory are saved.
        """
        self._open.crash(self._check_node(node), crash, _nanoseconds(after_s))

    @checked
    def restart(self, node: int, after_s: Seconds = 0) -> None:
        """Start a killed node again, now or later in virtual time, at the same address.

        A run that is under way then does not end before.
        """
        self._open.restart(self._check_node(node), _nanoseconds(after_s))

    @checked
    def pause(self, node: int, duration_s: Seconds) -> None:
        """Stop a node's threads for a while of virtual time; its NIC goes on serving peers."""
        self._open.pause(self._check_node(node), _nanoseconds(duration_s))

    @checked
    def slow_down(
        self, node: int, shift: Annotated[int, Between(0, 20)], duration_s: Seconds
    ) -> None:
        """Make a node's CPU and NIC ``2**shift`` times slower for a while of virtual time.

        The largest `shift` counts where such times overlap.
        """
        self._open.slow_down(self._check_node(node), shift, _nanoseconds(duration_s))

    @checked
    def block(self, source: int, target: int, duration_s: Seconds) -> None:
        """Lose every packet from `source` to `target` for a while of virtual time."""
        ends = self._check_node(source, "source"), self._check_node(target, "target")
        self._open.block(*ends, _nanoseconds(duration_s))

    @checked
    def fail_device(self, node: int, device: int, duration_s: Seconds) -> None:
        """Make one device of a node fail for a while of virtual time.

        Its queue pairs go to the error state. Peers' requests to it end as retry-exceeded. The node
        and its other devices go on.
        """
        ends = self._check_node(node), self._check_device(device)
        self._open.fail_device(*ends, _nanoseconds(duration_s))

    def heal(self) -> None:
        """End all faults now: partitions, pauses and slowness. Killed nodes restart."""
        self._open.heal()

    def counters(self, node: int, device: int = 0) -> dict[str, int]:
        """Return the counters of a NIC of `node` by name, counted since the cluster was made."""
        return dict(self._open.counters(self._check_node(node), self._check_device(device)))

    def network_counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of the switches' egress queues, counted since the cluster was made.

        The tiers are ``node`` (towards nodes), ``uplink`` (from racks to spines) and ``spine``
        (from spines to racks). Each has the messages that its queues ``dropped`` or
        ``ecn_marked``, and those after which flow control ``paused`` the port they came from.
        """
        return dict(self._open.network_counters())

    def _check_device(self, device: int) -> int:
        return whole("device", device, 0, self._devices - 1)

    @property
    def events(self) -> int:
        """Number of events that the simulator has executed."""
        return int(self._open.events)

    @property
    def fingerprint(self) -> int:
        """A hash of all event times, orders and random draws; equal runs have equal ones."""
        return int(self._open.fingerprint)


class ThreadCluster(InProcess):
    """Nodes as threads of this process, over shared memory or a device; see `Cluster.local`."""

    def __init__(
        self, nodes: int, seed: int, fabric: str, wish: Wish, faults: Mapping[str, float]
    ) -> None:
        self.fabric = fabric
        core: Any = native()
        if fabric == "verbs":
            cluster = core.ibverbs.Cluster(nodes=nodes, seed=seed, **asdict(wish))
        else:
            cluster = core.shm.Cluster(nodes=nodes, seed=seed, faults=dict(faults))
        super().__init__(nodes, seed, cluster)

    def fault_counters(self) -> dict[str, tuple[int, int]]:
        """Return how often each fault fired, and how often it reached its target."""
        if self.fabric != "shm":
            return super().fault_counters()
        return dict(self._open.fault_counters())


class _SharedMemoryProcesses(ProcessCluster, Cluster):
    """Nodes as processes over shared memory."""


class _VerbsProcesses(VerbsProcessCluster, Cluster):
    """Nodes as processes over a device."""


class _RemoteProcesses(RemoteProcessCluster, Cluster):
    """Nodes as processes on hosts."""
