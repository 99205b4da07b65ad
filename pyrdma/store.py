"""The state of a sweep on disk: the finished points and each point's measurements.

A table in SQLite (write-ahead log) lists the points. The rows of each point are a file of their
own, written atomically by the worker that measured the point. A killed sweep thus loses at most the
points that were running, and a reader never sees half a point.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from .errors import Error
from .experiment import Point
from .result import Result, Row, Sample, disk_error, write_atomically

__all__ = ["Store", "Task", "normalise", "read_point", "write_point"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS points (
  key TEXT PRIMARY KEY, params TEXT NOT NULL, repetition INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('todo', 'running', 'done', 'failed')),
  error TEXT NOT NULL DEFAULT '', seconds REAL NOT NULL DEFAULT 0
)
"""


@dataclass(frozen=True)
class Task:
    """One repetition of a point, with the key of its stored measurement."""

    point: Point
    key: str

    @classmethod
    def of(cls, point: Point, code: str) -> Task:
        """Key a point by its parameters, its world, and `code`, the hash of the measuring code."""
        text = json.dumps({**asdict(point), "code": code}, sort_keys=True, default=str)
        return cls(point, hashlib.sha256(text.encode()).hexdigest()[:20])


class Store:
    """State of the sweeps in one folder; only one process at a time may use it.

    Raises
    ------
    Error
        The folder cannot be written, or another run uses it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = _lock(folder)
        try:
            self._table = sqlite3.connect(folder / "sweep.db", isolation_level=None)
            self._table.execute("PRAGMA journal_mode=WAL")
            # A power failure may lose rows; the points' files restore them.
            self._table.execute("PRAGMA synchronous=NORMAL")
            self._table.execute(_SCHEMA)
            # This process has the lock, so the process that ran these points is gone.
            self._table.execute("UPDATE points SET state = 'todo' WHERE state = 'running'")
            for half_written in (folder / "points").glob(".*"):
                half_written.unlink()
        except sqlite3.Error as error:
            self._lock.close()
            raise self._failure(error) from error

    def close(self) -> None:
        """Release the folder."""
        self._table.close()
        self._lock.close()

    def path(self, key: str) -> Path:
        """Return the file of a point's measurement."""
        return self.folder / "points" / f"{key}.json"

    def pending(self, tasks: Iterable[Task]) -> list[Task]:
        """Register `tasks` and return the unfinished ones; failed ones are tried again."""
        waiting = []
        for task in tasks:
            params = json.dumps(dict(task.point.params), sort_keys=True)
            self._write(
                "INSERT INTO points (key, params, repetition, state) VALUES (?, ?, ?, 'todo') "
                "ON CONFLICT (key) DO NOTHING",
                (task.key, params, task.point.repetition),
            )
            # A worker may have written its file just before the run was killed.
            if self.path(task.key).is_file():
                self.mark(task.key, "done")
            else:
                self.mark(task.key, "todo")
                waiting.append(task)
        return waiting

    def mark(self, key: str, state: str, error: str = "", seconds: float = 0.0) -> None:
        """Set the state of a point."""
        self._write(
            "UPDATE points SET state = ?, error = ?, seconds = ? WHERE key = ?",
            (state, error, seconds, key),
        )

    def forget(self, tasks: Iterable[Task]) -> None:
        """Drop the measurements of `tasks`, so that they are measured again."""
        for task in tasks:
            with suppress(OSError):
                self.path(task.key).unlink()
            self._write("DELETE FROM points WHERE key = ?", (task.key,))

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        try:
            self._table.execute(statement, values)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: sqlite3.Error) -> Error:
        text = str(error)
        if "full" in text:
            return disk_error(self.folder, OSError(28, "no space left"))
        return Error(
            f"{self.folder}/sweep.db: {text}; choose another folder with --out, or remove the file"
        )


def _lock(folder: Path) -> IO[str]:
    """Take the folder's lock, which the kernel releases when its holder dies."""
    try:
        (folder / "points").mkdir(parents=True, exist_ok=True)
        # A once writable folder may have become read-only.
        stream = (folder / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise disk_error(folder, error) from error
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        stream.seek(0)
        holder = stream.read().strip() or "unknown"
        stream.close()
        raise Error(
            f"{folder}: another run (process {holder}) uses this folder; wait for "
            "it or choose another folder with --out"
        ) from None
    try:
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
    except OSError as error:
        stream.close()
        raise disk_error(folder, error) from error
    return stream


def normalise(measured: Any) -> Result:
    """Turn the return value of `Experiment.measure` into a result.

    Raises
    ------
    Error
        The value has none of the allowed types.
    """
    if isinstance(measured, Result):
        return measured
    if isinstance(measured, Mapping):
        rows = []
        for metric, value in measured.items():
            number, unit = value if isinstance(value, tuple) else (value, "")
            rows.append(Row(str(metric), float(number), str(unit)))
        measured = rows
    if isinstance(measured, (list, tuple)) and all(isinstance(r, Row) for r in measured):
        return Result(rows=list(measured))
    raise Error(
        f"measure() returned {type(measured).__name__}; return a Result, a mapping of metrics "
        "or a list of pyrdma.Row"
    )


def write_point(path: Path, task: Task, result: Result) -> None:
    """Write a point's rows and histograms; equal runs write equal content."""
    document = {
        "params": dict(task.point.params),
        "repetition": task.point.repetition,
        "profile": task.point.profile,
        "fabric": task.point.fabric,
        "clock": result.clock or ("virtual" if task.point.fabric == "sim" else "real"),
        "seed": task.point.seed,
        "rows": [[r.metric, r.value, r.unit, dict(r.labels)] for r in result.summary()],
        "samples": [[s.node, s.thread, s.metric, s.value, s.unit] for s in result.samples],
        "histograms": {
            name: [base64.b64encode(p).decode() for p in payloads]
            for name, payloads in result.histograms.items()
        },
    }
    write_atomically(path, json.dumps(document).encode())


def read_point(path: Path) -> tuple[list[dict[str, Any]], dict[str, list[bytes]], dict[str, Any]]:
    """Return a point's tidy rows, its histograms, and its parameters."""
    document = json.loads(path.read_text(encoding="utf-8"))
    common = {
        **document["params"],
        "profile": document["profile"],
        "fabric": document["fabric"],
        "clock": document["clock"],
        "seed": document["seed"],
        "repetition": document["repetition"],
    }
    rows = [
        {**common, **labels, "node": -1, "thread": -1, "metric": m, "value": v, "unit": u}
        for m, v, u, labels in document["rows"]
    ]
    samples = [Sample(*entry) for entry in document["samples"]]
    rows += [{**common, **asdict(s)} for s in samples if s.node != -1]
    histograms = {
        name: [base64.b64decode(p) for p in payloads]
        for name, payloads in document["histograms"].items()
    }
    return rows, histograms, document["params"]
