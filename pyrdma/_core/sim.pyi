from collections.abc import Callable, Mapping
from typing import Any

from . import Cluster as _Cluster

def parameters() -> list[dict[str, Any]]:
    """Every parameter of a profile: name, unit, min, max, meaning."""

def faults() -> list[dict[str, Any]]:
    """Every fault: key, number, how it is drawn, rate and duration when on, meaning."""

def random_faults(seed: int, probability: float = ...) -> dict[str, float]:
    """Draw the random subset of faults for a seed; return the rates of the drawn faults."""

class Timeline:
    """A recorded timeline."""

    @property
    def events(self) -> int:
        """Number of recorded events."""

    @property
    def left_out(self) -> int:
        """Number of events of the window beyond the limit."""

    @property
    def complete_until_ps(self) -> int:
        """Time of the first event that was left out."""

    def write(self, write: Callable[[bytes], object]) -> None:
        """Call write(bytes) for each piece of the file."""

class Cluster(_Cluster):
    """A simulated cluster."""

    def __init__(
        self,
        nodes: int,
        profile: Mapping[str, float],
        seed: int = ...,
        cores_per_node: int = ...,
        memory: str = ...,
        faults: Mapping[str, float] = ...,
        devices_per_node: int = ...,
        variance: bool = ...,
    ) -> None: ...
    @property
    def now_ns(self) -> int:
        """Virtual time."""

    @property
    def events(self) -> int:
        """Number of events so far."""

    @property
    def fingerprint(self) -> int:
        """Hash of the times and order of all events; equal for equal runs."""

    def start_timeline(self, from_ps: int, to_ps: int, most_events: int) -> None:
        """Record a timeline from now on."""

    def stop_timeline(self) -> Timeline:
        """End the recording and return the timeline."""

    def counters(self, node: int, device: int = ...) -> dict[str, int]:
        """Counters of a NIC of the node."""

    def network_counters(self) -> dict[str, dict[str, int]]:
        """Counters of the switches' queues by tier."""

    def fault_counters(self) -> dict[str, tuple[int, int]]:
        """How often each fault fired and had its effect."""

    def crash(self, node: int, how: str, after_ns: int = ...) -> None:
        """End a node: 'process', 'host' or 'battery'; now, or later in virtual time."""

    def restart(self, node: int, after_ns: int = ...) -> None:
        """Start a crashed node again; now, or later in virtual time."""

    def pause(self, node: int, duration_ns: int) -> None:
        """Stop a node's threads; its NIC continues."""

    def slow_down(self, node: int, shift: int, duration_ns: int) -> None:
        """Make a node 2^shift times slower."""

    def fail_device(self, node: int, device: int, duration_ns: int) -> None:
        """Make one NIC fail; the node and its other NICs go on."""

    def block(self, source: int, target: int, duration_ns: int) -> None:
        """Lose the packets from one node to another."""

    def heal(self) -> None:
        """End all faults now."""
