"""The parameters of a CPU, from operations that run alone on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from .machine import Caches, Machine, Samples

__all__ = ["cpu_measurements", "cpu_values"]

_PLAIN = (
    "add",
    "code",
    "atomic",
    "clock",
    "system_call",
    "context_switch",
    "process_start",
    "core_line",
)
_LEAST_MEMORY, _MOST_MEMORY = 1 << 28, 1 << 30


def _memory(caches: Caches) -> int:
    """Return a footprint that the caches hold little of."""
    return min(_MOST_MEMORY, max(_LEAST_MEMORY, 8 * caches.llc))


def _footprints(caches: Caches) -> list[int]:
    """Return footprints from the second-level cache on to the last-level cache's size."""
    found = [2 * caches.near]
    while found[-1] < caches.llc:
        found.append(2 * found[-1])
    return found


def cpu_measurements(machine: Machine) -> Mapping[str, Callable[[], float]]:
    """Return the measurements of the CPU's operations, by name."""
    caches = machine.caches
    walks = {caches.near // 2, *_footprints(caches), _memory(caches)}
    return {
        **{kind: partial(machine.operation, kind) for kind in _PLAIN},
        **{f"line/{size}": partial(machine.operation, "line", size) for size in sorted(walks)},
        "line_loaded": partial(machine.operation, "line_loaded", _memory(caches)),
    }


def cpu_values(
    samples: Samples, caches: Caches, instructions: float
) -> Mapping[str, tuple[float, str]]:
    """Return the parameters that the operations give, each with the name of its micro-benchmark.

    A walk over a footprint finds a part of its lines in the smaller caches: as large a part as the
    cache is of the footprint.
    """

    def line(size: int) -> float:
        return samples.quartile(f"line/{size}")

    near = line(caches.near // 2)
    memory_bytes = _memory(caches)
    # Other programs and virtual machines may leave only a part of the last-level cache.
    fastest = min(line(size) for size in _footprints(caches))
    middle = (fastest + line(memory_bytes)) / 2
    llc_bytes = max(
        [2 * caches.near, *(size for size in _footprints(caches) if line(size) < middle)]
    )
    llc_walk = max(2 * caches.near, llc_bytes // 2)

    def beyond(time: float, size: int, *inner: tuple[float, int]) -> float:
        """Return the time of the lines that no inner cache holds."""
        rest, held = time, 0.0
        for latency, cache in inner:
            share = min(1.0, cache / size) - held
            rest -= share * latency
            held += share
        return max(rest / (1 - held), *(latency for latency, _ in inner))

    inner = [(near, caches.near)]
    llc = beyond(line(llc_walk), llc_walk, *inner)
    inner.append((llc, llc_bytes))
    memory = beyond(line(memory_bytes), memory_bytes, *inner)
    loaded = max(memory, beyond(samples.quartile("line_loaded"), memory_bytes, *inner))
    walk = "a dependent load per random line of {} KiB".format
    core_line = samples.quartile("core_line")
    return {
        "cpu.clock_ghz": (1 / samples.quartile("add"), "a chain of dependent additions"),
        "cpu.ipc": (
            instructions * samples.quartile("add") / samples.quartile("code"),
            f"a request handler in the first-level cache, {instructions:.4g} instructions a pass",
        ),
        "cpu.atomic_ns": (samples.quartile("atomic"), "fetch-and-add to a word in the own cache"),
        "cpu.clock_read_ns": (samples.quartile("clock"), "reading the clock"),
        "cpu.system_call_ns": (samples.quartile("system_call"), "getppid"),
        "cpu.context_switch_ns": (
            samples.quartile("context_switch"),
            "two threads of a core wake each other through an eventfd",
        ),
        "cpu.process_start_ns": (
            samples.quartile("process_start"),
            "posix_spawn of the program true, and its end",
        ),
        "cpu.core_line_ns": (core_line, "two threads write a line in turn, one way"),
        "cpu.near_line_ns": (near, walk(caches.near // 2 >> 10)),
        "cpu.llc_line_ns": (llc, walk(llc_walk >> 10)),
        "cpu.memory_line_ns": (memory, walk(memory_bytes >> 10)),
        "cpu.memory_loaded_ns": (
            loaded,
            walk(memory_bytes >> 10) + " while the other cores copy memory",
        ),
        "cpu.llc_bytes": (
            float(llc_bytes),
            "largest footprint whose lines take less than the mean of last-level cache and memory",
        ),
    }
