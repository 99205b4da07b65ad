"""The micro-benchmarks of a fabric: which parameter each one determines.

A row runs on the machine and, with the profile so far, in the simulator. The parameter is the value
for which both agree. A row without a parameter is held out: it shows how well the profile predicts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from pyrdma.workload import ControlPath, Memcpy, VerbsLoad

from .machine import Caches, Point

__all__ = ["Row", "rows"]

COPY = 4096
"""Bytes of a copy."""

LARGE = 1 << 16
"""Bytes of a large message."""

POST, LATENCY = "write, the post", "write, latency"
PING_PONG = "ping-pong of writes, one way"


_Op = Literal["write", "read", "send", "fetch_add", "compare_swap"]


@dataclass(frozen=True)
class Row:
    """A micro-benchmark, and the parameter that it determines.

    Attributes
    ----------
    bytes
        Bytes of an operation, for a parameter that is a bandwidth.
    """

    what: str
    point: Point
    parameter: str = ""
    bytes: int = 0


def _load(op: _Op, **settings: Any) -> Point:
    return Point(VerbsLoad(op=op, **{"size": 8, **settings}))


def _each(op: _Op, **settings: Any) -> Point:
    """Return one signaled request at a time."""
    return _load(op, depth=1, batch=1, signal_every=1, **settings)


def _random_lines(op: _Op, near_bytes: int) -> Point:
    """Return one request at a time to lines that the second-level cache does not hold."""
    return replace(_each(op, addresses="random", region_bytes=2 * near_bytes), length=20)


def _copies(footprint: int, nodes: int = 1) -> Point:
    return Point(Memcpy(size=COPY, footprint_bytes=footprint // 2), nodes=nodes)


def _control(step: str, **settings: Any) -> Point:
    return Point(ControlPath(iterations=100, **settings), metric=step)


_WRITES = (
    Row(
        "write, 16 per post, the last signaled",
        _load("write", batch=16, signal_every=16, depth=64),
        "cpu.post_request_ns",
    ),
    Row(
        "write, 1 per post, every 16th signaled",
        _load("write", batch=1, signal_every=16, depth=64),
        "cpu.post_ns",
    ),
)
_PING_PONG = Point(VerbsLoad(op="write", size=8, measure="pingpong", clock_every=16), "write")


def _memory(caches: Caches, llc_bytes: int) -> tuple[Row, ...]:
    far = 8 * caches.llc
    return (
        Row(
            "copy of 4 KiB, second-level cache",
            _copies(caches.near // 2),
            "cpu.near_copy_gbps",
            COPY,
        ),
        Row("copy of 4 KiB, last-level cache", _copies(llc_bytes // 2), "cpu.llc_copy_gbps", COPY),
        Row("copy of 4 KiB, memory", _copies(far), "cpu.memory_copy_gbps", COPY),
    )


def _shm(near_bytes: int) -> tuple[Row, ...]:
    """Return the rows of shared memory, where the post does all the work.

    One line stays in the requester's cache, unlike the memory of peers that a system reads. So
    random lines of the last-level cache determine the wait of a read. A store waits for no line.
    """
    return (
        *_WRITES,
        Row("write, one at a time", _each("write"), "cpu.poll_ns"),
        Row(
            "read, one at a time, random lines", _random_lines("read", near_bytes), "nic.rx_read_ns"
        ),
        Row("fetch-and-add, one at a time, no other node", _each("fetch_add"), "nic.rx_atomic_ns"),
        Row("send, one at a time", _each("send"), "nic.rx_send_ns"),
        Row("write of 64 KiB, one at a time", _each("write", size=LARGE), "link.rate_gbps", LARGE),
        Row("set-up: a queue pair", _control("create_qp"), "control.create_us"),
        Row("set-up: registering 4 KiB", _control("register"), "control.register_us"),
        Row("set-up: the handshake", _control("handshake"), "control.handshake_us"),
        Row("write, 1 per post, each signaled", _load("write", batch=1, signal_every=1, depth=64)),
        Row("read, one at a time, the same line", _each("read")),
        Row("write, one at a time, random lines", _random_lines("write", near_bytes)),
        Row("read of 64 KiB, one at a time", _each("read", size=LARGE)),
        Row(PING_PONG, _PING_PONG),
    )


def _verbs(in_post: bool) -> tuple[Row, ...]:
    """Return the rows of a device: latencies of single requests, and rates of one queue pair.

    A device of software does its work in the post (`in_post`). Each request then costs the CPU, and
    no engine bounds a rate.
    """

    def engine(parameter: str, instead: str = "") -> str:
        return instead if in_post else parameter

    def latency(op: _Op, **settings: Any) -> Point:
        return Point(VerbsLoad(op=op, mode="latency", **{"size": 8, **settings}), op)

    def rate(op: _Op, **settings: Any) -> Point:
        return _load(op, **{"depth": 64, "batch": 16, "signal_every": 16, **settings})

    posts = Point(VerbsLoad(op="write", size=8, mode="latency", record_post=True), "post")
    return (
        Row(POST, posts, engine("cpu.post_ns", "cpu.post_request_ns")),
        Row(LATENCY, latency("write"), "nic.rx_latency_ns"),
        Row("read, latency", latency("read"), engine("pcie.read_ns", "nic.rx_read_ns")),
        Row("fetch-and-add, latency", latency("fetch_add"), "nic.rx_atomic_ns"),
        Row("send, latency", latency("send"), "nic.rx_send_ns"),
        Row("write, rate of 4 queue pairs", rate("write", qps=4), engine("nic.tx_message_ns")),
        Row("write, rate of a queue pair", rate("write"), engine("nic.qp_message_ns")),
        Row("read, rate of a queue pair", rate("read"), engine("nic.qp_read_ns")),
        Row(
            "fetch-and-add, rate at one word",
            rate("fetch_add"),
            engine("nic.atomic_address_ns"),
        ),
        Row(
            "write of 64 KiB, rate",
            rate("write", size=LARGE, depth=8, batch=1, signal_every=1),
            engine("link.rate_gbps"),
            LARGE,
        ),
        Row(
            "write of 64 KiB, latency",
            latency("write", size=LARGE),
            engine("", "link.rate_gbps"),
            LARGE,
        ),
        Row("set-up: changing a queue pair's state", _control("configure"), "control.command_us"),
        Row("set-up: opening the device", _control("open"), "control.open_us"),
        Row("set-up: a completion queue", _control("create_cq"), "control.create_us"),
        Row("set-up: a queue pair", _control("create_qp"), "control.create_qp_command_us"),
        Row("set-up: registering 4 KiB", _control("register"), "control.register_us"),
        Row(
            "set-up: registering 1 MiB",
            _control("register", region_bytes=1 << 20),
            "control.register_page_us",
        ),
        Row("set-up: the handshake", _control("handshake"), "control.handshake_us"),
        Row(PING_PONG, _PING_PONG),
        Row("read of 64 KiB, latency", latency("read", size=LARGE)),
        Row("write of 1 KiB, latency", latency("write", size=1024)),
        Row("compare-and-swap, latency", latency("compare_swap")),
        Row("send, rate of a queue pair", rate("send")),
        Row("set-up: a whole connection", _control("connect")),
    )


def rows(fabric: str, caches: Caches, llc_bytes: int, in_post: bool = False) -> tuple[Row, ...]:
    """Return the rows of a fabric in the order in which they are solved."""
    of_fabric = _shm(caches.near) if fabric == "shm" else _verbs(in_post)
    return (*_memory(caches, llc_bytes), *of_fabric)
