"""The measurements of one experiment on one fabric, a file for each point.

The store is a folder of immutable files, and no database. A results folder often lies on a file
system that several hosts share. SQLite's locks are unreliable there, its write-ahead log does not
work between hosts, and one damaged page can cost every measurement. A rename is atomic on every
file system: a reader sees all of a point, with the provenance that made it, or nothing. A kill or a
full disk loses the running points only, a power failure also those since the last sync
(`WrittenFolder`), and a damaged file costs its own point. The tables (``results.parquet``,
``hist.parquet``) are exports, made again from these files.

A file's name is the hash of all that its numbers depend on (`Task.identity`), and its first line
holds the hash of the rest. A reader checks both, and every field, before it uses any number.

Each run of an experiment into a folder has a number, above those of all runs before it, and its
points hold the number. So the order of two measurements of a point is that of their runs, whatever
the clocks of their machines said.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import _shapes, provenance
from ._point_fields import FIELDS, MOST_RUNS, RUN
from .arguments import shown
from .conditions import Conditions
from .errors import InvalidArgument
from .experiment import Point
from .files import DamagedFile, WrittenFolder, disk_error, lock_folder, own_folder, read_regular
from .result import SCHEMA, Result, Row, Sample, check_payload

__all__ = ["Measurement", "Store", "Task", "point_file", "read_folder", "read_point"]

MOST_BYTES = 256 << 20
"""Longest file of a point."""

_NAME = re.compile(r"[0-9a-f]{20}\.jsonl")
_TEMPORARY = re.compile(r"\.[0-9a-f]{20}\.jsonl\.\w{8}")
_POINTS, _DAMAGED, _LOCK = "points", "damaged", "lock"
_WRONG_KIND = (errno.ELOOP, errno.ENXIO, errno.EISDIR)
"""Errors of a link, a socket or a folder in the place of a file; others pass, such as too many open
files, and say nothing about the file."""


@dataclass(frozen=True)
class Task:
    """One repetition of a point, to be measured by `code` (`pyrdma.reach`) under a profile.

    `machine` is empty in virtual time, whose numbers are equal on every machine. Without an
    inventory, `testbed` is empty. `host` names the one host that measures all nodes over ``shm``.
    """

    point: Point
    code: str
    profile_digest: str = ""
    machine: str = ""
    testbed: str = ""
    host: str = ""

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the measured numbers depend on, as JSON has it."""
        return {
            "experiment": self.point.experiment,
            "params": dict(self.point.params),
            "fabric": self.point.fabric,
            "profile": self.point.profile,
            "profile_digest": self.profile_digest,
            "overrides": dict(self.point.overrides),
            "seed": self.point.seed,
            "repetition": self.point.repetition,
            "quick": self.point.quick,
            "code": self.code,
            "machine": self.machine,
            **{name: value for name, value in self._optional.items() if value},
        }

    @property
    def _optional(self) -> Mapping[str, str]:
        return {"testbed": self.testbed, "host": self.host}

    @property
    def key(self) -> str:
        """Name of the stored measurement."""
        return _key(self.identity)


def _key(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Measurement:
    """A stored point: its identity, its numbers, and the machine and versions that made it.

    Attributes
    ----------
    identity
        The fields of `Task.identity`.
    machine
        The CPU that measured, in virtual time too.
    stopped
        Time of the measurement's end, in UTC, by the clock of the machine that measured.
    rows, samples, histograms
        Numbers of the whole cluster; of nodes and threads; latencies. See `Result`.
    flags
        Conditions of the measurement (`pyrdma.conditions`), such as ``retransmit``.
    workloads
        The runs of workloads, each with ``workload``, ``nodes`` and ``parameters``.
    run
        Number of the run into the folder that measured it; 0 in a file of an earlier version.
    """

    identity: Mapping[str, Any]
    clock: str
    machine: str
    stopped: str
    rows: Sequence[Row]
    samples: Sequence[Sample]
    histograms: Mapping[str, Sequence[bytes]]
    provenance: Mapping[str, Any]
    flags: Sequence[str] = ()
    workloads: Sequence[Mapping[str, Any]] = ()
    run: int = 0

    @property
    def order(self) -> tuple[int, str]:
        """Key that sorts measurements of one folder from the oldest to the newest."""
        return self.run, self.stopped

    @property
    def key(self) -> str:
        """Name of the stored measurement, without its ending."""
        return _key(self.identity)

    @property
    def name(self) -> str:
        """The first digits of its name, which figures have for it."""
        return self.key[:8]


class Store:
    """The points of an experiment on a fabric; one process at a time measures into it.

    A point that has been `put` survives a kill, and from `close` on a power failure. One before it
    costs the points since the last sync (`WrittenFolder`), which the next run measures again.

    Parameters
    ----------
    out
        The results folder.
    experiment, place
        Id of the experiment, and the name of the folder: the fabric, or ``FABRIC@TESTBED``.

    Raises
    ------
    Error
        The folder cannot be written, another user could have prepared it, or another run uses it.
    """

    def __init__(self, out: Path, experiment: str, place: str) -> None:
        self.folder = own_folder(out, *experiment.split("/"), place)
        points = own_folder(self.folder, _POINTS)
        self._written = WrittenFolder(points)
        self._lock = lock_folder(self.folder, _LOCK)
        last = 0
        for entry in points.iterdir():
            if _TEMPORARY.fullmatch(entry.name):  # of a killed worker
                with suppress(OSError):
                    entry.unlink()
            elif _NAME.fullmatch(entry.name) and (found := self._whole(entry)):
                last = max(last, found.run)
        self._run = min(last + 1, MOST_RUNS)

    def close(self) -> None:
        """Wait until all points are on the disk, and release the folder."""
        try:
            self._written.sync()
        finally:
            os.close(self._lock)

    def path(self, key: str) -> Path:
        """Return the file of a point's measurement."""
        return self.folder / _POINTS / f"{key}.jsonl"

    def pending(self, tasks: Iterable[Task]) -> list[Task]:
        """Return the tasks without a measurement; a damaged one is set aside, with a warning."""
        return [task for task in tasks if not self.is_measured(task)]

    def is_measured(self, task: Task) -> bool:
        """Return whether a task has a whole measurement; set a damaged one aside."""
        return self._whole(self.path(task.key)) is not None

    def put(self, task: Task, content: bytes) -> None:
        """Write the file of a task's point, which another process has made with `point_file`.

        Raises
        ------
        ValueError
            The content is not a whole measurement of this very task; the text is the reason.
        DiskFull, Error
            The file cannot be written.
        """
        path = self.path(task.key)
        _parse(content, path.name)
        self._written.write(path.name, _of_run(content, self._run))

    def _whole(self, path: Path) -> Measurement | None:
        """Return a measurement if it is whole; set a damaged one aside."""
        try:
            return read_point(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _WRONG_KIND:
                raise disk_error(path, error) from error
            self._set_aside(path, error)
        except ValueError as error:
            self._set_aside(path, error)
        return None

    def _set_aside(self, path: Path, error: Exception) -> None:
        place = own_folder(self.folder, _DAMAGED) / path.name
        for number in range(1, 1000):
            if not place.exists() and not place.is_symlink():
                break
            place = place.with_name(f"{path.name}.{number}")
        try:
            path.replace(place)
        except OSError as failure:
            raise disk_error(path, failure) from failure
        _warn(path, error, f"moved to {place}, and its point is measured again")

    def repetitions(self) -> int:
        """Return the most repetitions of any point."""
        stored = read_folder(self.folder / _POINTS)
        return max((m.identity["repetition"] + 1 for m in stored), default=0)

    def forget(self, tasks: Iterable[Task]) -> None:
        """Remove the measurements of `tasks`."""
        for task in tasks:
            with suppress(OSError):
                self.path(task.key).unlink()


def point_file(task: Task, result: Result, conditions: Conditions | None = None) -> bytes:
    """Return the content of a point's file: its measurement, with the provenance of this process.

    Raises
    ------
    InvalidArgument
        The result has a text or a number that cannot be stored.
    """
    made_by = provenance.collect()
    if conditions is not None and conditions.clock_bound_ns:
        made_by = {**made_by, "clock_bound_ns": conditions.clock_bound_ns}
    document = {
        "identity": task.identity,
        "clock": result.clock or ("virtual" if task.point.fabric == "sim" else "real"),
        "machine": task.machine or provenance.machine(),
        "stopped": provenance.now(),
        "rows": [[r.metric, r.value, r.unit, dict(r.labels)] for r in result.summary()],
        "samples": [[s.node, s.thread, s.metric, s.value, s.unit] for s in result.samples],
        "histograms": {
            name: [base64.b64encode(p).decode() for p in payloads]
            for name, payloads in result.histograms.items()
        },
        "provenance": made_by,
        "flags": conditions.flags if conditions is not None else [],
        "workloads": conditions.workloads if conditions is not None else [],
    }
    for name, shape in FIELDS.items():
        if not shape(document[name]):
            raise InvalidArgument(
                f"{name} of the point {shown(dict(task.point.params))} of {task.point.experiment} "
                "cannot be stored: give texts of at most 4096 characters and numbers of 64 bits"
            )
    return _file_of(json.dumps(document, allow_nan=False).encode())


def _file_of(body: bytes) -> bytes:
    header = {"schema": SCHEMA, "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(header).encode() + b"\n" + body + b"\n"


def _of_run(content: bytes, run: int) -> bytes:
    """Return the content of a point's file, a JSON object, with the number of its run."""
    _, _, body = content.removesuffix(b"\n").partition(b"\n")
    return _file_of(body.rstrip().removesuffix(b"}") + b', "run": %d}' % run)


def read_folder(folder: Path) -> list[Measurement]:
    """Return the measurements in a folder of points, by name; damaged files give warnings."""
    found = []
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        warnings.warn(f"{folder} cannot be read: {error.strerror}", DamagedFile, stacklevel=2)
        return []
    for path in entries:
        if not _NAME.fullmatch(path.name):
            continue
        try:
            found.append(read_point(path))
        except FileNotFoundError:  # another run has set it aside
            continue
        except (OSError, ValueError) as error:
            _warn(path, error, "left out; 'pyrdma run' measures its point again")
    return found


def _warn(path: Path, error: Exception, remedy: str) -> None:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    state = "cannot be read" if isinstance(error, OSError) else "is damaged"
    warnings.warn(f"{path} {state}: {reason}; {remedy}", DamagedFile, stacklevel=3)


def read_point(path: Path) -> Measurement:
    """Return a stored measurement.

    Raises
    ------
    ValueError
        The file is not a whole measurement; the text is the reason.
    OSError
        The file cannot be read.
    """
    status = path.lstat()
    return _read(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=8192)
def _read(path: Path, changed_ns: int, size: int, number: int) -> Measurement:
    del changed_ns, size, number  # a file that has changed is read again
    return _parse(read_regular(path, MOST_BYTES), path.name)


def _parse(content: bytes, name: str) -> Measurement:
    """Return the measurement in a file of this name; see `read_point`."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    first, _, body = content.partition(b"\n")
    header = _json(first)
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise ValueError(f"its first line does not say schema {SCHEMA}")
    body = body.removesuffix(b"\n")
    if header.get("sha256") != hashlib.sha256(body).hexdigest():
        raise ValueError("its content does not have the hash in its first line")
    document = _json(body)
    if isinstance(document, dict):
        for later in ("flags", "workloads"):  # a file of an earlier version lacks them
            document.setdefault(later, [])
        document.setdefault("run", 0)
    for field, shape in (*FIELDS.items(), ("run", RUN)):
        if not isinstance(document, dict) or not shape(document.get(field)):
            raise ValueError(f"its field {field!r} is missing or wrong")
    assert isinstance(document, dict)
    if name != f"{_key(document['identity'])}.jsonl":
        raise ValueError("it has the name of another point")
    histograms = {
        label: [base64.b64decode(text) for text in texts]
        for label, texts in document["histograms"].items()
    }
    for payloads in histograms.values():
        for payload in payloads:
            check_payload(payload)
    return Measurement(
        **{field: document[field] for field in ("identity", "clock", "machine", "stopped")},
        rows=[Row(*entry) for entry in document["rows"]],
        samples=[Sample(*entry) for entry in document["samples"]],
        histograms=histograms,
        provenance=document["provenance"],
        flags=document["flags"],
        workloads=document["workloads"],
        run=document["run"],
    )


def _json(content: bytes) -> object:
    def no_constant(name: str) -> object:
        raise ValueError(f"it has the number {name}")

    try:
        value: object = json.loads(
            content, parse_int=_shapes.small_integer_text, parse_constant=no_constant
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value
