"""RDMA devices of this machine, and the device that a node would use."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from ._native import native
from .arguments import Between, checked, shown
from .errors import InvalidArgument

__all__ = ["Entry", "Wish", "choose", "entries", "problem"]


_LAST = 255
"""Largest port, and largest index of a GID table: libibverbs stores each in one byte."""


@checked
@dataclass(frozen=True)
class Wish:
    """A user's request for a node's device; `choose` fills in the rest.

    Parameters
    ----------
    device
        Name, for example ``mlx5_0``. A device on the login network is used only when named.
    port
        1 to 255; 0 for any.
    gid_index
        Entry of the port's GID table, 0 to 255; -1 for the best: RoCEv2 over IPv4 before others.
    address
        IP address of this node on the experiment's network, stored in the system's notation.

    Raises
    ------
    InvalidArgument
        Port or GID index is out of bounds, or the address is invalid.
    """

    device: str = ""
    port: Annotated[int, Between(0, _LAST)] = 0
    gid_index: Annotated[int, Between(-1, _LAST)] = -1
    address: str = ""

    def __post_init__(self) -> None:
        """Store the address in the system's notation."""
        object.__setattr__(self, "address", self.address and _canonical(self.address))

    @classmethod
    @checked
    def parse(cls, text: str) -> Wish:
        """Return the wish for ``device[:port[:gid]]`` or for an IP address.

        Raises
        ------
        InvalidArgument
            The text is neither, or a number is out of bounds.
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
                f"the text {shown(text)} is neither an IP address nor DEVICE[:PORT[:GID]]; "
                "give for example mlx5_0:1:3"
            )
        return cls(match[1], int(match[2] or 0), int(match[3] or -1))


def _canonical(text: str) -> str:
    """Return an IP address in the native side's notation of GID addresses."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise InvalidArgument(
            f"address {shown(text)} is not an IP address; give one of this node, "
            "for example 10.10.1.1 or fd00::1"
        ) from None
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.scope_id is not None:
        raise InvalidArgument(
            f"address {shown(text)} names an interface; leave out %{address.scope_id}, and "
            "give the device if several have the address"
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
    """Return why the build or rdma-core can open no device; empty when they can."""
    core: Any = native()
    return str(core.ibverbs.problem())


def entries() -> list[Entry]:
    """Return every entry of the GID tables of all devices.

    Raises
    ------
    Unavailable
        rdma-core is absent, or the build lacks its headers.
    """
    core: Any = native()
    return [Entry(**row) for row in core.ibverbs.candidates()]


@checked
def choose(wish: Wish | None = None) -> dict[str, Any]:
    """Return the device for this wish: device, port, gid_index, address, reason.

    Raises
    ------
    Unavailable
        No device fits; the message lists the devices and why each does not fit.
    """
    core: Any = native()
    chosen: dict[str, Any] = core.ibverbs.choose(**asdict(wish or Wish()))
    return chosen
