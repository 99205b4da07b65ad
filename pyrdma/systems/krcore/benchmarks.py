"""KRCore's rows of ``pyrdma bench``: a client and a server, each a process with one thread.

The threads of their services sleep most of the time. An application calls the service of its own
process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from pyrdma._native import native
from pyrdma.bench import peers
from pyrdma.bench.benchmark import Benchmark, Better, PeerRun
from pyrdma.bench.peer import Availability, two_cpus
from pyrdma.result import Result

__all__ = [
    "benchmarks",
    "call_us",
    "connect_rate",
    "connect_us",
    "line_us",
    "lookup_rate",
    "raw_read_rate",
    "raw_read_us",
    "read_rate",
    "ring_rate",
]

LINE_TRIPS = 4
"""Round trips of a cache line between two cores, which a call is held against."""
CALLS = 1.5
"""Empty calls that a cached connect is held against."""
META_READS = 3
"""READs that a connect is held against that asks a meta server."""
LOOKUP_READS = 3
"""READs of a RACE lookup: two combined buckets and a block."""
LIST = 32
"""READs of a list."""
SMALL, LARGE = 4096, 16 << 20
"""Bytes of a region that fits a cache, and of one as large as the table of the lookups."""

_WARMUP_NS = 50_000_000


def _run(load: Any, duration_s: float) -> Result:
    import pyrdma as rd

    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        return cluster.run(load, duration_s=duration_s)


def line_us(duration_s: float = 0.1) -> float:
    """Return the time of a round trip of a cache line between two threads."""
    core: Any = native()
    return 2e-3 * float(core.measure.cpu_operation_ns("core_line", 0, round(duration_s * 1e9)))


def call_us(duration_s: float = 0.2) -> float:
    """Return the mean time of a call that finds nothing to do: a pop of an idle queue."""
    import pyrdma as rd

    load = rd.workload.KrcoreConnect(op="pop", cached=True, warmup_ns=_WARMUP_NS)
    return 1e6 / float(_run(load, duration_s).value("rate"))


def connect_rate(cached: bool = True, duration_s: float = 0.3) -> float:
    """Return the queues per second that a client creates, connects and destroys, one by one."""
    import pyrdma as rd

    load = rd.workload.KrcoreConnect(cached=cached, warmup_ns=_WARMUP_NS)
    return float(_run(load, duration_s).value("rate"))


def connect_us(cached: bool, duration_s: float = 0.3) -> float:
    """Return the median time of a connect alone, of 64 queues in a row."""
    import pyrdma as rd

    load = rd.workload.KrcoreConnect(cached=cached, queues=64, warmup_ns=_WARMUP_NS)
    return float(_run(load, duration_s).latency("connect").percentile(50)) / 1e3


def _raw_reads(duration_s: float, **axes: Any) -> float:
    import pyrdma as rd

    load = rd.workload.VerbsLoad(op="read", servers=1, warmup_ns=_WARMUP_NS, **axes)
    return float(_run(load, duration_s).value("rate"))


def raw_read_us(size: int = 128, duration_s: float = 0.3) -> float:
    """Return the mean time of a READ of the fabric, one at a time."""
    return 1e6 / _raw_reads(duration_s, size=size, depth=1, batch=1)


def raw_read_rate(size: int, region_bytes: int, duration_s: float = 0.4) -> float:
    """Return the fabric's READs per second of random addresses, in lists of `LIST`.

    The last one of a list has a signal. The next list begins after its completion.
    """
    return _raw_reads(
        duration_s,
        size=size,
        depth=LIST,
        batch=LIST,
        signal_every=LIST,
        addresses="random",
        region_bytes=region_bytes,
    )


def read_rate(duration_s: float = 0.4) -> float:
    """Return the READs of 8 bytes per second in such lists, each in a call that waits for it."""
    import pyrdma as rd

    load = rd.workload.KrcoreOneSided(
        op="read", size=8, batch=LIST, region_bytes=SMALL, warmup_ns=_WARMUP_NS
    )
    return float(_run(load, duration_s).value("rate"))


def ring_rate(op: Literal["read", "nothing"], duration_s: float = 0.4) -> float:
    """Return the slots per second of such lists through a daemon's ring."""
    import pyrdma as rd

    load = rd.workload.KrcoreRing(op=op, batch=LIST, warmup_ns=_WARMUP_NS)
    return float(_run(load, duration_s).value("rate"))


def lookup_rate(duration_s: float = 0.4) -> float:
    """Return the lookups per second of a RACE table on virtual queue pairs, 64 under way."""
    import pyrdma as rd

    load = rd.workload.KrcoreRace(window=64, keys=100_000, value_bytes=8, warmup_ns=_WARMUP_NS)
    return float(_run(load, duration_s).value("rate"))


def _beside(name: str, measure: Callable[[], float]) -> PeerRun:
    return PeerRun(name, measure, lambda: Availability(True, "", ""))


def benchmarks() -> list[Benchmark]:
    """Return the benchmarks; their names begin with the system's name."""
    sockets, ucx, redis = (peers.load(name) for name in ("unix_sockets", "ucx_am", "redis"))
    connects = "Queues that a client creates, connects to a known node and destroys, one by one"
    lookups = "Lookups of a RACE table of 100,000 keys on virtual queue pairs, 64 under way"
    return [
        Benchmark(
            "krcore/call",
            "us",
            Better.LOWER,
            call_us,
            "A call that finds nothing to do; the peer: 4 round trips of a cache line between two "
            "threads.",
            PeerRun("cache lines", lambda: LINE_TRIPS * line_us(), lambda: two_cpus("")),
        ),
        Benchmark(
            "krcore/connect_cached",
            "us",
            Better.LOWER,
            partial(connect_us, True),
            "A connect to a known node; the peer: 1.5 empty calls.",
            _beside("empty calls", lambda: CALLS * call_us()),
        ),
        Benchmark(
            "krcore/connect_miss",
            "us",
            Better.LOWER,
            partial(connect_us, False),
            "A connect that asks a meta server; the peer: a cached one, and 3 READs of 128 bytes "
            "of the fabric.",
            _beside("cached + READs", lambda: connect_us(True) + META_READS * raw_read_us()),
        ),
        Benchmark(
            "krcore/connect_rate",
            "op/s",
            Better.HIGHER,
            connect_rate,
            f"{connects}; the peer: connect and accept of Unix-domain sockets.",
            PeerRun.of(sockets, "connect_rate"),
        ),
        Benchmark(
            "krcore/connect_rate_ucx",
            "op/s",
            Better.HIGHER,
            connect_rate,
            f"{connects}; the peer: endpoints to a known worker, over posix shared memory.",
            PeerRun.of(ucx, "endpoint_rate"),
        ),
        Benchmark(
            "krcore/read_rate_8",
            "op/s",
            Better.HIGHER,
            read_rate,
            "READs of 8 bytes in lists of 32, each in a call that waits for it; the peer: the same "
            "on a reliable queue pair of the fabric.",
            _beside("shm", partial(raw_read_rate, 8, SMALL)),
        ),
        Benchmark(
            "krcore/ring_read_rate_8",
            "op/s",
            Better.HIGHER,
            partial(ring_rate, "read"),
            "READs of 8 bytes in lists of 32 by an application behind a daemon's ring; the peer: "
            "calls of 32 slots that do nothing.",
            _beside("echoes", partial(ring_rate, "nothing")),
        ),
        Benchmark(
            "krcore/race_lookups",
            "op/s",
            Better.HIGHER,
            lookup_rate,
            f"{lookups}; the peer: a third of the fabric's READs of 128 bytes at random addresses, "
            "in lists of 32.",
            _beside("READs / 3", lambda: raw_read_rate(128, LARGE) / LOOKUP_READS),
        ),
        Benchmark(
            "krcore/race_lookups_redis",
            "op/s",
            Better.HIGHER,
            lookup_rate,
            f"{lookups}; the peer: Redis over a Unix socket, pipelined.",
            PeerRun.of(redis, "lookup_rate"),
        ),
    ]
