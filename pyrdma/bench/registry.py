"""The benchmarks of ``pyrdma bench``."""

from __future__ import annotations

from functools import partial

from pyrdma import systems

from . import nics, ours, peers
from .benchmark import Benchmark, Better, PeerRun

__all__ = ["benchmarks"]


def _simulator() -> list[Benchmark]:
    simgrid = peers.load("simgrid")
    return [
        Benchmark(
            name="sim/one_sided_16",
            unit="op/s",
            better=Better.HIGHER,
            ours=partial(ours.simulated_rate, 16, 1.5e6, 50_000),
            about=(
                "Simulated RC writes of 64 bytes per second of CPU time, 16 nodes in pairs, 16 in "
                "flight each, posted and signaled in fours; the peer: messages of 64 bytes between "
                "actors in pairs."
            ),
            peer=PeerRun.of(simgrid, "message_rate_16"),
        ),
        Benchmark(
            name="sim/one_sided_1000",
            unit="op/s",
            better=Better.HIGHER,
            ours=partial(ours.simulated_rate, 1000, 0.8e6, 5_000),
            about="The same with 1,000 nodes.",
            peer=PeerRun.of(simgrid, "message_rate_1000"),
            rounds=3,
        ),
        Benchmark(
            name="sim/awaited_sleep",
            unit="op/s",
            better=Better.HIGHER,
            ours=ours.sleep_rate,
            about="Sleeps that one task of a node program awaits per second of CPU time.",
            rounds=3,
        ),
        Benchmark(
            name="sim/node_memory",
            unit="byte",
            better=Better.LOWER,
            ours=ours.node_bytes,
            about="Growth of the peak memory per simulated node with one idle thread.",
            rounds=1,
        ),
    ]


def _shared_memory() -> list[Benchmark]:
    ucx = peers.load("ucx")
    openmpi = peers.load("openmpi")
    return [
        Benchmark(
            name="shm/write_latency_64",
            unit="us",
            better=Better.LOWER,
            ours=partial(ours.shm_latency_us, 64),
            about=(
                "64-byte RC write until the other process sees its last byte: half the mean round "
                "trip of a ping-pong polled in memory; the peer: put_lat, the same."
            ),
            peer=PeerRun.of(ucx, "write_latency_64", scale=1e6),
        ),
        Benchmark(
            name="shm/write_rate_64",
            unit="op/s",
            better=Better.HIGHER,
            ours=partial(ours.shm_rate, "write", 64),
            about=(
                "64-byte RC writes to one address, windows of 64, one completion in 32; the peer: "
                "put_bw, copies that are complete on return, with one flush at the end."
            ),
            peer=PeerRun.of(ucx, "write_rate_64"),
        ),
        Benchmark(
            name="shm/read_rate_8",
            unit="op/s",
            better=Better.HIGHER,
            ours=partial(ours.shm_rate, "read", 8),
            about=(
                "8-byte RC reads, windows of 64, one completion in 32; the peer: windows of 64 "
                "MPI_Get and a flush, one-sided component sm."
            ),
            peer=PeerRun.of(openmpi, "get_rate_8"),
        ),
        Benchmark(
            name="shm/fetch_add_rate_8",
            unit="op/s",
            better=Better.HIGHER,
            ours=partial(ours.shm_rate, "fetch_add", 8),
            about="The same with fetch-and-add; the peer: MPI_Fetch_and_op of MPI_SUM.",
            peer=PeerRun.of(openmpi, "fetch_add_rate_8"),
        ),
        Benchmark(
            name="shm/send_rate_64",
            unit="op/s",
            better=Better.HIGHER,
            ours=partial(ours.shm_rate, "send", 64),
            about=(
                "64-byte RC sends into posted receives; the peer: am_bw with short messages, whose "
                "receiver reads a header and copies nothing."
            ),
            peer=PeerRun.of(ucx, "send_rate_64"),
        ),
    ]


def benchmarks() -> list[Benchmark]:
    """Return all benchmarks, in the order of the table."""
    return [
        *_simulator(),
        *_shared_memory(),
        *nics.benchmarks(),
        *(row for part in systems.parts("benchmarks") for row in part.benchmarks()),
        Benchmark(
            name="python/import",
            unit="s",
            better=Better.LOWER,
            ours=ours.import_seconds,
            about="`import pyrdma` in a new interpreter.",
        ),
        Benchmark(
            name="build/wheel",
            unit="s",
            better=Better.LOWER,
            ours=ours.build_seconds,
            about="A clean build of the wheel without a compiler cache; runs only if named.",
            rounds=1,
            opt_in=True,
        ),
    ]
