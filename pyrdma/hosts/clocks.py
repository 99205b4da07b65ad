"""The clocks of the hosts of a run, compared over the experiment network.

The first host answers probes: datagrams that carry its time. Every other host sends some dozens,
and takes the one with the shortest way there and back, since the reply was then made in the middle
of the shortest interval. Half of that interval bounds the error, whatever the two ways took.

The driver compares before and after each run. The nodes of a run get clocks that read on the first
host's scale (`Scale`), so their times need no correction afterwards. The bound holds for the whole
run: it covers the errors of both comparisons and what the clock has drifted between them.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrdma.errors import Error

if TYPE_CHECKING:
    from .host import Host

__all__ = ["Comparison", "HostClocks", "Responder", "Scale", "probe"]

_REQUEST = struct.Struct(">16s")
_REPLY = struct.Struct(">16sq16s")
_WAIT_S, _LOOK_S = 0.05, 0.2
_MOST_LOST = 20
_PROBES = 40
MOST_DRIFT = 5e-4
"""A clock whose rate differs by more is broken, or its host slept: no correction can be trusted."""


@dataclass(frozen=True)
class Comparison:
    """How a host's clock compares with the first host's, at one time.

    Attributes
    ----------
    at_ns
        Time of the comparison, by the host's own clock.
    offset_ns
        What must be added to that clock to get the first host's time.
    bound_ns
        Largest error of the offset.
    """

    at_ns: int
    offset_ns: int
    bound_ns: int


@dataclass(frozen=True)
class Scale:
    """A host's clock on the first host's scale: ``t + offset + drift * (t - at)``."""

    at_ns: int = 0
    offset_ns: int = 0
    drift: float = 0.0
    bound_ns: int = 0

    @classmethod
    def of(cls, last: Comparison, earlier: Comparison | None = None) -> Scale:
        """Return the scale after a comparison; an earlier one tells the drift."""
        drift = 0.0
        if earlier is not None and last.at_ns - earlier.at_ns > 10**9:
            drift = (last.offset_ns - earlier.offset_ns) / (last.at_ns - earlier.at_ns)
            if abs(drift) > MOST_DRIFT:
                drift = 0.0
        return cls(last.at_ns, last.offset_ns, drift, last.bound_ns)

    def error_of(self, later: Comparison) -> int:
        """Return the bound for all times between the scale's comparison and a later one, in ns."""
        predicted = self.offset_ns + self.drift * (later.at_ns - self.at_ns)
        return max(self.bound_ns, round(abs(later.offset_ns - predicted)) + later.bound_ns)


class Responder:
    """Answers probes in a thread until it is closed.

    Parameters
    ----------
    address
        Address of this host on the experiment network.
    key
        Secret that the probing hosts share.
    """

    def __init__(self, address: str, key: bytes, clock: Any) -> None:
        self._socket = socket.socket(_family(address), socket.SOCK_DGRAM)
        self._socket.settimeout(_LOOK_S)
        try:
            self._socket.bind((address, 0))
        except OSError as error:
            self._socket.close()
            raise Error(
                f"no socket at {address}: {error.strerror}; correct pyrdma_address, which must be "
                "an address of this host"
            ) from None
        self._key = key
        self._clock = clock
        self._closed = False
        self.port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            try:
                request, sender = self._socket.recvfrom(64)
                now = self._clock.now_ns
                if len(request) == _REQUEST.size:
                    self._socket.sendto(_reply(self._key, request, now), sender)
            except TimeoutError:
                continue
            except OSError:  # the reply has no way now, and another may
                time.sleep(_WAIT_S)

    def close(self) -> None:
        """End the thread and close the socket."""
        self._closed = True
        self._thread.join()
        self._socket.close()


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET


def _reply(key: bytes, request: bytes, now: int) -> bytes:
    code = hmac.digest(key, request + struct.pack(">q", now), "sha256")[:16]
    return _REPLY.pack(request, now, code)


def probe(address: str, port: int, key: bytes, count: int, clock: Any) -> Comparison:
    """Send `count` probes and return the comparison with the smallest bound.

    Raises
    ------
    Error
        No reply came.
    """
    best: Comparison | None = None
    lost = 0
    with socket.socket(_family(address), socket.SOCK_DGRAM) as out:
        out.settimeout(_WAIT_S)
        try:
            out.connect((address, port))
        except OSError as error:
            raise Error(f"{address} cannot be reached: {error.strerror}") from None
        for _ in range(count):
            request = secrets.token_bytes(_REQUEST.size)
            try:
                sent = clock.now_ns
                out.send(request)
                reply = out.recv(64)
                received = clock.now_ns
            except OSError:
                lost += 1
                if lost >= _MOST_LOST:
                    break
                continue
            if len(reply) != _REPLY.size:
                continue
            again, time, _ = _REPLY.unpack(reply)
            if again != request or not hmac.compare_digest(reply, _reply(key, request, time)):
                continue  # a late reply, or a stranger's
            bound = (received - sent + 1) // 2
            if best is None or bound < best.bound_ns:
                middle = (sent + received) // 2
                best = Comparison(middle, time - middle, bound)
    if best is None:
        raise Error(
            f"no answer from {address}, UDP port {port}, {lost} probes lost; check the experiment "
            "network between the hosts, and its firewall"
        )
    return best


class HostClocks:
    """The clocks of the hosts of a cluster, on the scale of the first one.

    Parameters
    ----------
    hosts
        The hosts that hold nodes. Each remembers its last comparison, which tells the drift.
    """

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._first, self._others = hosts[0], hosts[1:]
        asked = [h.ask("clock") for h in hosts]
        self._scales = {self._first: Scale()}
        for host, found in self._compare().items():
            self._scales[host] = Scale.of(found, host.compared)
            host.compared = found
        self._parts = {
            h: h.wait(future, "clock")["parts"] for h, future in zip(hosts, asked, strict=True)
        }

    def _compare(self) -> dict[Host, Comparison]:
        if not self._others:
            return {}
        key, address = secrets.token_hex(32), self._first.entry.address
        port = self._first.call("serve", address=address, key=key)
        place = {"address": address, "port": port, "key": key, "count": _PROBES}
        asked = [h.ask("probe", **place) for h in self._others]
        found = zip(self._others, asked, strict=True)
        return {h: Comparison(**h.wait(future, "probe")) for h, future in found}

    def parts(self, host: Host) -> list[int]:
        """Return the parts of the clock that the nodes of a host read."""
        from pyrdma._native import native

        core: Any = native()
        scale = self._scales[host]
        clock = core.ibverbs.Clock.from_parts(self._parts[host])
        return list(clock.adjusted(scale.at_ns, scale.offset_ns, scale.drift).parts)

    def bound_ns(self) -> int:
        """Compare again; return the largest difference of two hosts' times since the first time.

        Each host's error is against the first host, so two others may differ by the sum of theirs.
        """
        errors = [0, 0]
        for host, found in self._compare().items():
            errors.append(self._scales[host].error_of(found))
            host.compared = found
        return sum(sorted(errors)[-2:])
