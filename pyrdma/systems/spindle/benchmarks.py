"""Spindle's rows of ``pyrdma bench``: two members, each a process with one thread."""

from __future__ import annotations

from pyrdma.bench import peers
from pyrdma.bench.benchmark import Benchmark, Better, PeerRun
from pyrdma.bench.peer import Availability
from pyrdma.result import Result

__all__ = ["benchmarks", "copies", "delivered", "sample_latency_us", "sample_rate"]

_LARGE = 8 << 20


def delivered(duration_s: float = 0.3) -> float:
    """Return the bytes per second that each of two members delivers; both send 10 KiB messages."""
    import pyrdma as rd

    load = rd.workload.Multicast(
        preset="best", predicate_thread="sender", max_message=10_240, window=64
    )
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        return float(cluster.run(load, duration_s=duration_s).value("delivered_bandwidth"))


def _samples(samples: int, pause_ns: int) -> Result:
    import pyrdma as rd

    load = rd.workload.SpindleDds(
        preset="best",
        predicate_thread="sender",
        qos="atomic",
        samples=samples,
        pause_ns=pause_ns,
        max_message=1024,
        window=256,
    )
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        return cluster.run(load)


def sample_rate(duration_s: float = 0.3) -> float:
    """Return the samples of 1 KiB per second that one subscriber gets from one publisher."""
    return float(_samples(round(2e6 * duration_s), 0).value("message_rate"))


def sample_latency_us(duration_s: float = 0.3) -> float:
    """Return the median time of a 1 KiB sample from its loan to the subscriber, one at a time."""
    samples = _samples(round(20_000 * duration_s), 20_000)
    return float(samples.latency("sample").percentile(50)) / 1e3


def copies(duration_s: float = 0.3) -> float:
    """Return bytes per second of one thread that copies 8 MiB again and again."""
    import pyrdma as rd

    load = rd.workload.Memcpy(size=_LARGE, warmup_ns=50_000_000)
    with rd.Cluster.local(nodes=1, fabric="shm", mode="process") as cluster:
        return float(cluster.run(load, duration_s=duration_s).value("bandwidth"))


def benchmarks() -> list[Benchmark]:
    """Return the benchmarks; their names begin with the system's name."""
    multicast = "Bytes per second that each of two members delivers; both send messages of 10 KiB"
    corosync, cyclonedds = peers.load("corosync"), peers.load("cyclonedds")
    machine = PeerRun("memcpy", copies, lambda: Availability(True, "", ""))
    return [
        Benchmark(
            "spindle/multicast_10k",
            "byte/s",
            Better.HIGHER,
            delivered,
            f"{multicast}; the peer: one thread that copies 8 MiB within its own memory.",
            machine,
        ),
        Benchmark(
            "spindle/multicast_10k_corosync",
            "byte/s",
            Better.HIGHER,
            delivered,
            f"{multicast}; the peer: Corosync's closed process groups, in agreed order.",
            PeerRun.of(corosync, "rate_10240", scale=10_240),
        ),
        Benchmark(
            "spindle/dds_rate",
            "op/s",
            Better.HIGHER,
            sample_rate,
            "Samples of 1 KiB from one publisher to one subscriber, all in order; the peer: "
            "Cyclone DDS, reliable, over loopback.",
            PeerRun.of(cyclonedds, "rate_1024"),
        ),
        Benchmark(
            "spindle/dds_latency",
            "us",
            Better.LOWER,
            sample_latency_us,
            "Median time of a sample of 1 KiB, one at a time; the peer: half a round trip of "
            "Cyclone DDS.",
            PeerRun.of(cyclonedds, "latency_1024", scale=1e6),
        ),
    ]
