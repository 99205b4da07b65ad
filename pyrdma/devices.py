"""RDMA devices of this machine: what is there, and what a node would use."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import asdict, dataclass
from typing import Any

from ._native import native
from .errors import InvalidArgument

__all__ = ["Entry", "Wish", "choose", "entries", "problem"]


_LAST = 255
"""Of ports and of a GID table's entries: libibverbs gives either one byte."""


@dataclass(frozen=True)
class Wish:
    """What may be asked of a node's device; what is left out is chosen.

    Parameters
    ----------
    device
        Name, as ``mlx5_0``. A device on the login network is used only when it is named.
    port
        1 to 255; 0 for any.
    gid_index
        Entry of the port's GID table, 0 to 255; -1 for the best: RoCEv2 over IPv4 before others.
    address
        IP address of the experiment's network on this node; kept as the system writes it.

    Raises
    ------
    InvalidArgument
        Port or GID index is out of bounds, or the address is none.
    """

    device: str = ""
    port: int = 0
    gid_index: int = -1
    address: str = ""

    def __post_init__(self) -> None:
        """Check what was asked."""
        _check("port", self.port, 0, "any")
        _check("gid_index", self.gid_index, -1, "the best")
        object.__setattr__(self, "address", self.address and _canonical(self.address))

    @classmethod
    def parse(cls, text: str) -> Wish:
        """Return the wish that ``device[:port[:gid]]`` or an IP address spells.

        Raises
        ------
        InvalidArgument
            It is neither, or a number is out of bounds.
        """
        try:
            ipaddress.ip_address(text)
        except ValueError:
            pass
        else:
            return cls(address=text)
        match = re.fullmatch(r"([^:]*)(?::([+-]?[0-9]+))?(?::([+-]?[0-9]+))?", text)
        if match is None or re.fullmatch(r"[0-9.]+", match[1]):
            raise InvalidArgument(
                f"{text!r} is neither an IP address nor DEVICE[:PORT[:GID]], as mlx5_0:1:3"
            )
        return cls(match[1], int(match[2] or 0), int(match[3] or -1))


def _check(name: str, value: object, unset: int, meaning: str) -> None:
    if not isinstance(value, int) or not unset <= value <= _LAST:
        raise InvalidArgument(
            f"{name} {value!r} is not from {unset + 1} to {_LAST}, nor {unset} for {meaning}"
        )


def _canonical(text: str) -> str:
    """Return an IP address as the native side writes those of GIDs."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise InvalidArgument(
            f"address {text!r} is no IP address of this node, as 10.10.1.1 or fd00::1"
        ) from None
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.scope_id is not None:
        raise InvalidArgument(
            f"address {text!r} names an interface; leave out %{address.scope_id}, and name the "
            "device if several have the address"
        )
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else socket.inet_ntop(socket.AF_INET6, address.packed)


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
