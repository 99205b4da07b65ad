"""Measure a machine and make a complete profile of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from pyrdma import profiles, provenance
from pyrdma.errors import Unavailable
from pyrdma.workload import Memcpy

from .cpu import cpu_measurements, cpu_values
from .machine import Caches, LocalMachine, Machine, Samples, simulate
from .rows import LATENCY, PING_PONG, POST, Row, rows
from .solve import Agreement, solve

__all__ = ["Calibration", "Measured", "calibrate", "cpu_lines"]

REPETITIONS, RUNS = 7, 21
"""Measurements of each operation of the CPU and each copy, and of each other row."""

NOISY = 0.15
"""Spread from which a measurement is called noisy."""

_OTHERWISE = "cx5"
"""The profile that gives what a calibration cannot measure."""


@dataclass(frozen=True)
class Measured:
    """One parameter of a profile."""

    key: str
    value: float
    unit: str
    source: str

    def line(self) -> str:
        """Return the parameter as a line of the profile's table."""
        name = self.key.split(".")[1]
        source = json.dumps(self.source, ensure_ascii=False)
        return f'{name} = {{ value = {self.value:.6g}, unit = "{self.unit}", source = {source} }}'

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class Calibration:
    """A profile, and how well it agrees with what it was made of.

    Attributes
    ----------
    head
        The keys before the tables, without the name.
    parameters
        Every parameter, in the order of the native table.
    agreements
        Every row of the fabric, measured and simulated.
    spreads
        How far the median of each measurement is above its lower quartile, which counts.
    """

    head: Mapping[str, str | int]
    parameters: Sequence[Measured]
    agreements: Sequence[Agreement]
    spreads: Mapping[str, float]

    def document(self, name: str) -> str:
        """Return the profile as TOML. It extends no other file."""
        lines = [
            "# Written by pyrdma calibrate.",
            *(
                f"{key} = {json.dumps(value, ensure_ascii=False)}"
                for key, value in {"name": name, **self.head}.items()
            ),
        ]
        table = ""
        for parameter in self.parameters:
            if parameter.key.split(".")[0] != table:
                table = parameter.key.split(".")[0]
                lines += ["", f"[{table}]"]
            lines.append(parameter.line())
        return "\n".join(lines) + "\n"

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "head": dict(self.head),
            "parameters": [parameter.as_dict() for parameter in self.parameters],
            "rows": [
                {
                    "row": found.row.what,
                    "parameter": found.row.parameter,
                    "measured_ns": found.measured,
                    "simulated_ns": found.simulated,
                    "spread": self.spreads[found.row.what],
                }
                for found in self.agreements
            ],
            "spreads": dict(self.spreads),
        }


def calibrate(fabric: str, device: str = "") -> Calibration:
    """Calibrate this machine with two nodes on `fabric` (``shm`` or ``verbs``).

    Raises
    ------
    Unavailable
        The machine has one core, or the fabric is missing.
    """
    if provenance.usable_cores() < 2:
        raise Unavailable(
            "calibrate --fabric needs 2 cores, one for each node; this process may use 1. "
            "Calibrate on a larger machine, or widen the CPU affinity (taskset)"
        )
    with closing(LocalMachine(fabric, device)) as machine:
        return profile_of(record(machine, fabric, device))


@dataclass(frozen=True)
class Recording:
    """What a machine has measured; `profile_of` makes a profile of it, on any machine."""

    fabric: str
    device: str
    cpu: str
    cores: int
    caches: Caches
    instructions: float
    samples: Samples

    def cpu_values(self) -> Mapping[str, tuple[float, str]]:
        """Return the parameters that the operations of the CPU give."""
        return cpu_values(self.samples, self.caches, self.instructions)

    def rows(self) -> tuple[Row, ...]:
        """Return the rows of the fabric."""
        llc_bytes = int(self.cpu_values()["cpu.llc_bytes"][0])
        return rows(self.fabric, self.caches, llc_bytes, self._works_in_post())

    def _works_in_post(self) -> bool:
        """Return whether most of a write's latency passes before its post returns."""
        if POST not in self.samples:
            return False
        return self.samples.quartile(POST) > self.samples.quartile(LATENCY) / 2

    def all_copy(self) -> Row:
        """Return the row in which all cores copy."""
        row = next(row for row in self.rows() if row.parameter == "cpu.memory_copy_gbps")
        point = replace(row.point, nodes=0)
        return Row("copy of 4 KiB, memory, all cores", point, bytes=row.bytes)


def record(machine: Machine, fabric: str, device: str = "") -> Recording:
    """Measure a machine; a test gives one whose parameters it knows."""
    model = provenance.collect()["cpu"]["model"]
    samples = Samples()
    samples.take(cpu_measurements(machine), REPETITIONS)
    instructions = machine.code_instructions()
    found = Recording(fabric, device, model, machine.cores, machine.caches, instructions, samples)
    table = (*found.rows(), found.all_copy())
    copies = [row for row in table if isinstance(row.point.workload, Memcpy)]
    # A copy beyond a large cache first touches all of its memory, which takes seconds.
    for some, runs in ((copies, REPETITIONS), ([r for r in table if r not in copies], RUNS)):
        samples.take({row.what: partial(machine.run, row.point) for row in some}, runs)
    return found


def profile_of(recording: Recording) -> Calibration:
    """Find the parameters that explain a recording."""
    fabric, samples = recording.fabric, recording.samples
    day = datetime.now(timezone.utc).date().isoformat()
    device = f" --device {recording.device}" if recording.device else ""
    command = f"pyrdma calibrate --fabric {fabric}{device}"
    measured = f"measured: {command} on {recording.cpu}, {day}; ".__add__

    found = {key: (value, measured(what)) for key, (value, what) in recording.cpu_values().items()}
    found["cpu.near_bytes"] = (float(recording.caches.near), recording.caches.source)
    base = _stated(fabric)
    values = {key: parameter.value for key, parameter in base.items()}
    values.update({key: value for key, (value, _) in found.items()})
    found.update(_derived(fabric, values))
    values.update({key: value for key, (value, _) in found.items()})
    cores = max(1, recording.cores // 2)
    table = recording.rows()
    times = {row.what: samples.quartile(row.what) for row in table}

    def simulated(values: Mapping[str, float], row: Row) -> float:
        return simulate(_with_round_trip(values), row.point, cores, times[row.what])

    agreements = solve(table, times, values, simulated)
    if fabric == "shm":
        handed_over = {
            key: (value, measured(what)) for key, (value, what) in _handed_over(agreements, values)
        }
        found.update(handed_over)
        values.update({key: value for key, (value, _) in handed_over.items()})
        agreements = solve(table, times, values, simulated)
    values = _with_round_trip(values)
    for row in table:
        if row.parameter:
            found[row.parameter] = (values[row.parameter], measured(row.what))
    everywhere = recording.all_copy()
    node_gbps = max(
        everywhere.bytes * 8 / samples.quartile(everywhere.what) / 2, values["cpu.memory_copy_gbps"]
    )
    found["cpu.memory_gbps"] = (
        node_gbps,
        measured(f"{everywhere.what}; half of it, as two nodes share the machine"),
    )
    return Calibration(
        head={
            "title": f"Two nodes on one machine over {fabric}",
            "testbed": f"calibrated/{fabric}",
            "nodes": 2,
            "cores_per_node": cores,
            "cpu_model": recording.cpu,
            "nic_model": recording.device
            or ("none: shared memory" if fabric == "shm" else "the machine's device"),
        },
        parameters=[
            Measured(key, *_parted(key, found.get(key), base[key])) for key in profiles.parameters()
        ],
        agreements=agreements,
        spreads=samples.spreads(),
    )


def _with_round_trip(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values with a DMA read, a round trip, that is not shorter than a DMA write."""
    least = values["pcie.write_ns"]
    return {**values, "pcie.read_ns": max(values["pcie.read_ns"], least)}


def _parted(
    key: str, found: tuple[float, str] | None, stated: profiles.Parameter
) -> tuple[float, str, str]:
    value, source = found or (stated.value, stated.source)
    return value, profiles.parameters()[key][0], source


def _stated(fabric: str) -> Mapping[str, profiles.Parameter]:
    """Return what the parts state; those of the calibrated machine say why they are so."""
    own = profiles.stated_by_parts([fabric])
    stated = {**profiles.Profile.load(_OTHERWISE).parameters, **own}
    return {
        key: parameter
        if key in own
        or parameter.is_estimate
        or parameter.source.startswith(("standard:", "vendor:"))
        else profiles.Parameter(
            parameter.value,
            parameter.unit,
            f"estimate: not measured here; as in {parameter.file}: {parameter.source}",
        )
        for key, parameter in stated.items()
    }


def _derived(fabric: str, values: Mapping[str, float]) -> dict[str, tuple[float, str]]:
    """Return the parameters that follow from others."""
    line = values["cpu.core_line_ns"]
    per_ns = values["cpu.ipc"] * values["cpu.clock_ghz"]

    def instructions(count: int) -> tuple[float, str]:
        return max(1.0, count / per_ns), f"estimate: {count} instructions at the measured rate"

    found = {
        "cpu.empty_poll_ns": instructions(40),
    }
    if fabric == "verbs":
        return {
            **found,
            "cpu.post_ns": instructions(80),
            "cpu.post_request_ns": instructions(80),
            "cpu.poll_ns": instructions(80),
            **dict.fromkeys(
                ("cpu.nic_line_ns", "cpu.own_line_ns"),
                (
                    values["cpu.llc_line_ns"],
                    "estimate: as cpu.llc_line_ns, since the NIC writes to the last-level cache",
                ),
            ),
            "cpu.nic_llc_bytes": (
                values["cpu.llc_bytes"] / 10,
                "estimate: a tenth of cpu.llc_bytes, as with Intel DDIO",
            ),
        }
    return {
        **found,
        "cpu.nic_line_ns": (
            line,
            "estimate: as cpu.core_line_ns, since a peer's core wrote the line",
        ),
        "cpu.nic_llc_bytes": (
            values["cpu.near_bytes"],
            "estimate: as cpu.near_bytes, since what a peer wrote stays in its second-level cache",
        ),
        "nic.atomic_address_ns": (
            0.0,
            "estimate: none, since a word's line stays with the node that changes it again",
        ),
    }


def _handed_over(
    agreements: Sequence[Agreement], values: Mapping[str, float]
) -> list[tuple[str, tuple[float, str]]]:
    """Return the wait for a line that a peer's core has just written.

    A ping-pong takes this wait and what the simulator shows, since a raw load charges no lines.
    Nodes that share a core take turns of the kernel instead: `cpu.core_line_ns` stands then.
    """
    line = values["cpu.core_line_ns"]
    row = next(found for found in agreements if found.row.what == PING_PONG)
    wait = row.measured - row.simulated
    if not line <= wait <= 20 * line:
        return []
    what = "a ping-pong of writes, less its post and turn as simulated: the wait for a peer's line"
    return [("cpu.nic_line_ns", (wait, what))]


def cpu_lines(machine: Machine) -> list[Measured]:
    """Measure the CPU alone: the lines of a profile's table ``cpu``. It takes some seconds."""
    source = f"measured: pyrdma calibrate cpu on {provenance.collect()['cpu']['model']}; ".__add__
    samples = Samples()
    samples.take(cpu_measurements(machine), 3)
    found = dict(cpu_values(samples, machine.caches, machine.code_instructions()))
    base = {key: parameter.value for key, parameter in _stated("shm").items()}
    base.update({key: value for key, (value, _) in found.items()})
    table = [
        row
        for row in rows("shm", machine.caches, int(base["cpu.llc_bytes"]))
        if row.what.startswith("copy")
    ]
    samples.take({row.what: partial(machine.run, row.point) for row in table}, 3)
    times = {row.what: samples.quartile(row.what) for row in table}
    solve(table, times, base, lambda v, row: simulate(v, row.point, 1, times[row.what]))
    found.update({row.parameter: (base[row.parameter], row.what) for row in table})
    units = profiles.parameters()
    return [
        Measured(key, found[key][0], units[key][0], source(found[key][1]))
        for key in units
        if key in found
    ]
