"""Count the instructions and cache lines of each step of a system's protocols.

``pyrdma calibrate scopes`` runs workloads of a system under valgrind's tracer of memory accesses
(lackey), in the simulator, whose own instructions do not count (`native/calibration`). The run is
deterministic, so two measurements of one build are equal. The result goes into the lists of steps
(``scopes.h``) from which the simulator takes its costs.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from . import provenance, systems
from ._scope_trace import Cost, Counts, Reader
from .errors import InvalidArgument, Unavailable
from .profiles import Profile

__all__ = ["Calibration", "Cost", "Counts", "calibrations", "differences", "measure", "renewed"]

TOLERANCE = 0.1
"""Relative difference from which a table is out of date."""


@dataclass(frozen=True)
class Calibration:
    """A workload whose steps are counted while its threads pass through the step `first`.

    Only the steps whose names begin with `steps` count: another workload measures the others.
    """

    workload: str
    first: str
    params: tuple[str, ...]
    nodes: int = 3
    steps: str = ""


def program() -> Path:
    """Return the traced program of this checkout."""
    root = Path(__file__).resolve().parent.parent
    found = sorted(root.glob("build/*/native/trace_scopes"), key=lambda p: p.stat().st_mtime)
    if not found:
        raise Unavailable(
            f"no build of trace_scopes below {root / 'build'}; make one in a checkout: "
            "cmake --build build/release --target trace_scopes"
        )
    return found[-1]


def measure(system: str, only: Iterable[Calibration] | None = None) -> Counts:
    """Count the steps of a system, or of `only` some of its workloads: 5 to 15 s each."""
    counts = Counts()
    profile = Profile.load("cx5")
    with tempfile.TemporaryDirectory() as folder:
        values = Path(folder) / "profile"
        values.write_text("".join(f"{k} {v!r}\n" for k, v in profile.values().items()))
        for calibration in only or calibrations(system):
            _run(calibration, values, counts)
    return counts


def calibrations(system: str) -> tuple[Calibration, ...]:
    """Return the workloads that pass through each step of a system."""
    if system not in systems.NAMES:
        raise InvalidArgument(f"system {system!r}: there are {', '.join(systems.NAMES)}")
    found: tuple[Calibration, ...] = systems.part(system, "scopes").CALIBRATIONS
    return found


def _marks() -> dict[str, str]:
    """Return the addresses of the marks; valgrind loads the program at the same place each time."""
    printed = _valgrind("none", ["-q"], []).stdout
    return {name: address for name, _, address in map(_parted, printed.splitlines())}


def _parted(line: str) -> tuple[str, str, str]:
    return line.rpartition(" ")


def _valgrind(
    tool: str, options: list[str], arguments: list[str], *passed: int
) -> subprocess.CompletedProcess[str]:
    command = ["valgrind", f"--tool={tool}", *options, str(program()), *arguments]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=passed)
    except FileNotFoundError:
        raise Unavailable("valgrind is missing; install the package valgrind") from None
    if run.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {run.stderr.strip()[-400:]}")
    return run


def _run(calibration: Calibration, values: Path, counts: Counts) -> None:
    reader = Reader(_marks(), calibration.first)
    trace, log = os.pipe()

    def read() -> None:
        with os.fdopen(trace, "rb", buffering=1 << 20) as stream:
            reader.read(stream)

    reading = Thread(target=read)
    reading.start()
    try:
        _valgrind(
            "lackey",
            ["--trace-mem=yes", f"--log-fd={log}"],
            [str(values), str(calibration.nodes), "8", calibration.workload, *calibration.params],
            log,
        )
    finally:
        os.close(log)
        reading.join()
    reader.add_to(counts, calibration.steps)


def tables(system: str) -> list[Path]:
    """Return the lists of steps that a system's runs measure."""
    native = Path(__file__).resolve().parent.parent / "native"
    return [native / "runtime" / "scopes.h", native / "systems" / system / "scopes.h"]


_ROW = re.compile(r"^  X\((\w+), (.*?)\)( *\\?)$", re.MULTILINE)


def checked_in(path: Path) -> dict[str, list[float]]:
    """Return the rows of a list of steps."""
    prefix = path.parent.name
    return {
        f"{prefix}/{name}": [float(number) for number in numbers.split(",")]
        for name, numbers, _ in _ROW.findall(path.read_text(encoding="utf-8"))
    }


def differences(system: str, counts: Counts) -> list[str]:
    """Return one line for each step whose cost differs from the list's by a tenth or more.

    A step's lines count by their number, and one line is as much as a tenth of a small step.
    """
    found = []
    for path in tables(system):
        for name, listed in checked_in(path).items():
            cost = counts.steps.get(name)
            if cost is None:
                found.append(f"{name}: no calibration passes it")
                continue
            row = cost.row()
            if abs(row[0] - listed[0]) > TOLERANCE * max(listed[0], row[0]):
                found.append(f"{name}: {row[0]:g} instructions, {listed[0]:g} in {path.name}")
            elif abs(sum(row[1:]) - sum(listed[1:])) > max(0.25, TOLERANCE * sum(listed[1:])):
                lines = f"{sum(row[1:]):.3g} lines, {sum(listed[1:]):.3g}"
                found.append(f"{name}: {lines} in {path.name}")
    return found


def renewed(path: Path, counts: Counts) -> str:
    """Return the text of a list of steps with the counted costs."""
    prefix = path.parent.name

    def row(match: re.Match[str]) -> str:
        cost = counts.steps.get(f"{prefix}/{match[1]}")
        if cost is None:
            return match[0]
        numbers = ", ".join(f"{number:g}" for number in cost.row())
        begin = f"  X({match[1]}, {numbers})"
        return begin.ljust(97) + "\\" if match[3] else begin

    text = _ROW.sub(row, path.read_text(encoding="utf-8"))
    collected = provenance.collect()
    for key, value in (
        ("machine", collected["cpu"]["model"]),
        ("compiler", _compiler()),
        ("commit", (collected["git"] or {"commit": "unknown"})["commit"][:12]),
    ):
        text = re.sub(rf"^// {key}: .*$", f"// {key}: {value}", text, flags=re.MULTILINE)
    return text


def _compiler() -> str:
    cache = (program().parents[1] / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE)
    name = found[1] if found else "c++"
    printed = subprocess.run([name, "--version"], capture_output=True, text=True, check=False)
    return printed.stdout.splitlines()[0] if printed.stdout else name
