"""Clocks of hosts on one scale, with a bound of the error."""

from __future__ import annotations

import errno
import random
import secrets
import socket
import struct
import threading
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from pyrdma._native import native
from pyrdma.errors import Error
from pyrdma.hosts import clocks
from pyrdma.hosts.clocks import Comparison, HostClocks, Responder, Scale
from tests.errors import raises

KEY = secrets.token_bytes(32)


@dataclass
class Shifted:
    """A clock that reads differently by a known amount."""

    clock: object
    shift: int

    @property
    def now_ns(self) -> int:
        return int(self.clock.now_ns) + self.shift  # type: ignore[attr-defined]


def clock() -> object:
    core: object = native()
    return core.ibverbs.Clock()  # type: ignore[attr-defined]


@pytest.mark.parametrize("shift", [0, 5_000_000_000, -7_000_000])
def test_a_known_offset_is_found_within_the_bound(shift: int) -> None:
    base = clock()
    responder = Responder("127.0.0.1", KEY, Shifted(base, shift))
    try:
        found = clocks.probe("127.0.0.1", responder.port, KEY, 40, base)
    finally:
        responder.close()
    assert abs(found.offset_ns - shift) <= found.bound_ns
    assert found.bound_ns < 50_000_000


def test_a_reply_that_cannot_be_sent_is_not_the_last_one() -> None:
    class Failing(Shifted):
        has_failed = False

        @property
        def now_ns(self) -> int:
            if not self.has_failed:
                self.has_failed = True
                raise OSError(errno.ENETUNREACH, "no way")
            return super().now_ns

    base = clock()
    responder = Responder("127.0.0.1", KEY, Failing(base, 0))
    try:
        clocks.probe("127.0.0.1", responder.port, KEY, 40, base)
    finally:
        responder.close()


def test_the_bound_covers_drift_and_both_comparisons() -> None:
    choice = random.Random(7)
    for _ in range(1000):
        drift, offset = choice.uniform(-1e-4, 1e-4), choice.randrange(-(10**9), 10**9)

        def compared(at: int, drift: float = drift, offset: int = offset) -> Comparison:
            bound = choice.randrange(1, 20_000)
            wrong = choice.randrange(-bound, bound + 1)
            return Comparison(at, round(offset + drift * at) + wrong, bound)

        earlier, before, after = (compared(at) for at in (0, 3 * 10**9, 8 * 10**9))
        scale = Scale.of(before, choice.choice([None, earlier]))
        bound = scale.error_of(after)
        for at in (before.at_ns, after.at_ns, choice.randrange(before.at_ns, after.at_ns)):
            read = at + scale.offset_ns + scale.drift * (at - scale.at_ns)
            assert abs(read - (at + offset + drift * at)) <= bound + 2


def test_a_broken_rate_is_not_taken_for_drift() -> None:
    earlier, later = Comparison(0, 0, 10), Comparison(2 * 10**9, 10**8, 10)
    assert Scale.of(later, earlier).drift == 0.0


def test_forged_and_late_replies_are_ignored() -> None:
    base = clock()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(5)

        def lie() -> None:
            for _ in range(10):
                request, sender = server.recvfrom(64)
                for reply in (b"", request, request + struct.pack(">q", 10**15) + bytes(16)):
                    server.sendto(reply, sender)

        liar = threading.Thread(target=lie)
        liar.start()
        with raises(Error, "127.0.0.1", "firewall"):
            clocks.probe("127.0.0.1", server.getsockname()[1], KEY, 10, base)
        liar.join()


def test_an_address_of_another_host_is_named() -> None:
    with raises(Error, "192.0.2.1", "pyrdma_address"):
        Responder("192.0.2.1", KEY, clock())
    with raises(Error, "127.0.0.1", "lost"):
        clocks.probe("127.0.0.1", 1, KEY, 3, clock())


class Compared:
    """A host whose comparison with the first host finds these offsets in turn."""

    def __init__(self, *found: Comparison) -> None:
        self.entry = SimpleNamespace(address="127.0.0.1")
        self.found = iter(found)
        self.compared: Comparison | None = None

    def ask(self, what: str, **_: object) -> str:
        return what

    def call(self, what: str, **_: object) -> int:
        assert what == "serve"
        return 1

    def wait(self, _asked: str, what: str) -> dict[str, object]:
        if what == "clock":
            return {"parts": [0, 0, 0]}
        return asdict(next(self.found))


def test_two_hosts_may_differ_by_the_sum_of_their_errors() -> None:
    def host(bound: int) -> Compared:
        return Compared(Comparison(0, 0, bound), Comparison(1000, 0, bound))

    hosts: list[Any] = [host(0), host(30), host(50)]
    assert HostClocks(hosts).bound_ns() == 80
    hosts = [host(0), host(30)]
    assert HostClocks(hosts).bound_ns() == 30
