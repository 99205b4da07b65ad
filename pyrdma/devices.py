"""RDMA devices of this machine: what is there, and what a node would use."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .doctor import native
from .errors import InvalidArgument

__all__ = ["Entry", "Wish", "choose", "entries", "problem"]


@dataclass(frozen=True)
class Wish:
    """What may be asked of a node's device; what is left out is chosen.

    Parameters
    ----------
    device
        Name, as ``mlx5_0``. A device on the login network is used only when it is named.
    port
        1 or more; 0 for any.
    gid_index
        Entry of the port's GID table; -1 for the best: RoCEv2 over IPv4 before all others.
    address
        IP address of the experiment's network on this node.
    """

    device: str = ""
    port: int = 0
    gid_index: int = -1
    address: str = ""

    @classmethod
    def parse(cls, text: str) -> Wish:
        """Return the wish that ``device[:port[:gid]]`` or an IP address spells.

        Raises
        ------
        InvalidArgument
            Port or GID index is no number.
        """
        parts = text.split(":")
        if text.count(".") == 3 or len(parts) > 3:
            return cls(address=text)
        try:
            port, gid_index, *_ = *map(int, parts[1:]), *(0, -1)[len(parts) - 1 :]
        except ValueError as error:
            raise InvalidArgument(
                f"{text!r} is neither an IP address nor DEVICE[:PORT[:GID]], as mlx5_0:1:3"
            ) from error
        return cls(parts[0], port, gid_index)


@dataclass(frozen=True)
class Entry:
    """One entry of a port's GID table."""

    device: str
    port: int
    gid_index: int
    type: str
    address: str
    interface: str
    active: bool
    login: bool
    mtu: int
    gid: str
    firmware: str
    problem: str


def problem() -> str:
    """Return why no device can be opened as far as the build and rdma-core go, or nothing."""
    core: Any = native()
    return str(core.ibverbs.problem())


def entries() -> list[Entry]:
    """Return every entry of the GID tables of all devices.

    Raises
    ------
    Unavailable
        rdma-core is not there, or the build is without its headers.
    """
    core: Any = native()
    return [Entry(**row) for row in core.ibverbs.candidates()]


def choose(wish: Wish | None = None) -> dict[str, Any]:
    """Return what a node with this wish would use: device, port, gid_index, address, reason.

    Raises
    ------
    Unavailable
        Nothing fits; the message lists what there is and why it does not do.
    """
    core: Any = native()
    chosen: dict[str, Any] = core.ibverbs.choose(**asdict(wish or Wish()))
    return chosen
