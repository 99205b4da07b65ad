"""The benchmarks of pyrdma itself, measured through the public Python API."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyrdma.errors import Error, Unavailable

from .awaited import awaited_rate

__all__ = [
    "build_seconds",
    "import_seconds",
    "node_bytes",
    "shm_latency_us",
    "shm_rate",
    "simulated_rate",
    "sleep_rate",
]

_NO_CODE = "/"
"""Working folder of new interpreters, which import from their working folder first."""


def simulated_rate(nodes: int, operations: float, nanoseconds: int) -> float:
    """Return simulated one-sided operations per second of CPU time.

    Every node keeps 16 writes of 64 bytes in flight to its neighbour. It posts four at a time with
    one completion for each four, as the load does by default at this depth. A first, short run
    estimates the speed and the cost of connecting. Its time is subtracted, since SimGrid's time
    excludes its platform too.

    Parameters
    ----------
    nodes
        Number of nodes of the cluster.
    operations
        Approximate number of operations to simulate; it decides the length of the measured run.
    nanoseconds
        Virtual time of the first run.
    """
    import pyrdma as rd

    load = rd.workload.VerbsLoad(
        op="write",
        size=64,
        depth=16,
        batch=4,
        signal_every=4,
        servers=0,
        pattern="pair",
        warmup_ns=0,
    )

    def timed(virtual_s: float) -> tuple[float, float]:
        start = time.process_time()
        result = cluster.run(load, duration_s=virtual_s)
        return float(result.value("ops")), time.process_time() - start

    with rd.Cluster.sim(nodes=nodes, profile="cx5", seed=1) as cluster:
        short_s = nanoseconds * 1e-9
        few, few_s = timed(short_s)
        many, many_s = timed(short_s * max(2.0, operations / few))
    if many_s <= few_s:
        raise Error(f"{many:g} operations took no longer than {few:g}; the machine is too busy")
    return (many - few) / (many_s - few_s)


def sleep_rate() -> float:
    """Return the sleeps per second of CPU time of a node program."""
    return awaited_rate(lambda _: lambda node: lambda: node.sleep(ns=10))


def _shm(duration_s: float, **axes: Any) -> Any:
    import pyrdma as rd

    load = rd.workload.VerbsLoad(servers=1, warmup_ns=20_000_000, **axes)
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        return cluster.run(load, duration_s=duration_s)


def shm_rate(op: str, size: int, duration_s: float = 0.4) -> float:
    """Return requests per second from one thread of one process to another process.

    The thread keeps 64 requests in flight and posts 32 at a time, with one completion in 32. A
    request counts after the thread has polled a completion that covers it.
    """
    result = _shm(duration_s, op=op, size=size, depth=64, batch=32, signal_every=32, mode="rate")
    return float(result.value("rate"))


def shm_latency_us(size: int, duration_s: float = 0.4) -> float:
    """Return half the mean round trip of writes between two processes that poll their memory."""
    result = _shm(
        duration_s, op="write", size=size, depth=1, mode="latency", measure="pingpong", inline=1
    )
    # Histograms count whole nanoseconds; the rate of round trips does not round.
    return 0.5e6 / float(result.value("rate"))


def _printed_number(code: str, *arguments: str) -> float:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=_NO_CODE
    )
    if done.returncode != 0:
        raise Error(f"a new interpreter failed:\n{done.stderr.strip()}")
    return float(done.stdout)


_IMPORT = "import time; s = time.perf_counter(); import pyrdma; print(time.perf_counter() - s)"


def import_seconds() -> float:
    """Return the time of ``import pyrdma`` in a new interpreter, in seconds."""
    return _printed_number(_IMPORT)


# Ending threads may free their stacks, so the script measures the growth of the peak. The run with
# few nodes loads all code and tables first.
_GROWTH = """
import sys
import pyrdma as rd

def peak_after(nodes):
    with rd.Cluster.sim(nodes=nodes, profile="cx5", seed=1) as cluster:
        cluster.run(rd.workload.Idle(), duration_s=1e-6)
    with open("/proc/self/status") as lines:  # getrusage has the parent's peak too
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

few = peak_after(2)
print(peak_after(2 + int(sys.argv[1])) - few)
"""


def node_bytes(nodes: int = 1000) -> float:
    """Return the growth of peak memory per simulated node with an idle thread, in bytes."""
    return _printed_number(_GROWTH, str(nodes)) / nodes


def build_seconds() -> float:
    """Return the time of a clean build of the wheel without a compiler cache, in seconds.

    Raises
    ------
    Unavailable
        The package was installed without its source tree.
    """
    tree = Path(__file__).resolve().parent.parent.parent
    if not (tree / "CMakeLists.txt").is_file():
        raise Unavailable(f"no source tree at {tree}; run the benchmark from a clone")
    with tempfile.TemporaryDirectory(prefix="pyrdma-build-") as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir"]
        command += ["--wheel-dir", folder, str(tree)]
        env = {**os.environ, "CCACHE_DISABLE": "1"}
        start = time.perf_counter()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=env, cwd=_NO_CODE
        )
        elapsed = time.perf_counter() - start
    if done.returncode != 0:
        raise Error(f"`{' '.join(command)}` failed:\n{done.stderr.strip()[-2000:]}")
    return elapsed
