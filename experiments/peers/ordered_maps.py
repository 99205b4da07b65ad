"""Ordered maps under a reader and a writer: LMDB, oneTBB's concurrent_map, std::map under a lock.

The program is ``ordered_maps.cc``, beside this file. Each map has a million random keys of 8 bytes
with values of 8 bytes. One thread reads, another one puts without a pause, each on a CPU of its
own. The measurements of each map, whose name they begin with:

``get_rate``, ``put_rate``
    Gets and puts of random keys, at the same time.
``scan_rate``
    Scans of 128 keys from a random key on, beside the same writer.
``mixed_scan_rate``
    Scans that show no moment of the map. The writer goes round 128 neighbours with growing values;
    at any moment the values are consecutive. A map whose scans are linearizable has none.

``lmdb_in_place`` is LMDB with ``MDB_WRITEMAP``: puts are faster, but a full ``/dev/shm`` then ends
the process by SIGBUS instead of failing the put.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from pyrdma.bench.peer import (
    Availability,
    chosen,
    compiled,
    missing_tools,
    named_values,
    output_of,
    two_cpus,
)

NAME = "ordered maps"
INSTALL_COMMAND = "apt-get install liblmdb-dev libtbb-dev g++"

_MAPS = ("lmdb", "lmdb_in_place", "tbb", "locked")
_TESTS = {
    "get_rate": "gets",
    "put_rate": "gets",
    "scan_rate": "scans",
    "mixed_scan_rate": "mixed",
}
MEASUREMENTS = {f"{name}_{rate}": "op/s" for name in _MAPS for rate in _TESTS}


def available() -> Availability:
    """Return whether a compiler, the headers of both libraries and two CPUs are available."""
    tools = missing_tools(["g++", "timeout"], INSTALL_COMMAND)
    if not tools.ok:
        return tools
    for header in ("lmdb.h", "oneapi/tbb/concurrent_map.h"):
        probe = f"#if !__has_include(<{header}>)\n#error missing\n#endif\n"
        command = ["g++", "-std=c++20", "-x", "c++", "-E", "-o", "/dev/null", "-"]
        found = subprocess.run(command, input=probe, text=True, capture_output=True, check=False)
        if found.returncode != 0:
            return Availability(False, f"the header {header} is missing", INSTALL_COMMAND)
    return two_cpus(INSTALL_COMMAND)


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Compile the program if necessary and measure; the module describes the measurements."""
    names = chosen(measurements, MEASUREMENTS)
    source = Path(__file__).with_name("ordered_maps.cc")
    program = compiled(source, ["g++", "-std=c++20", "-O2", "-pthread"], ["-llmdb", "-ltbb"])
    values: dict[str, float] = {}
    for map_name in _MAPS:
        for test in dict.fromkeys(_TESTS.values()):
            rates = [
                rate
                for rate, taken_by in _TESTS.items()
                if taken_by == test and f"{map_name}_{rate}" in names
            ]
            if rates:
                said = output_of([str(program), map_name, test, f"{seconds:g}"])
                for rate, value in named_values(said, rates).items():
                    values[f"{map_name}_{rate}"] = value
    return {name: values[name] for name in names}
