"""Timelines of simulated runs, for viewers of the Trace Event format.

https://ui.perfetto.dev and chrome://tracing open the files.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

from .arguments import Between, FilePath, checked, shown
from .errors import Error, InvalidArgument
from .files import check_output, replacing
from .units import convert

__all__ = ["LIMIT", "WHOLE_PS", "Options", "Recorder", "Timeline", "line", "write"]

LIMIT = 200_000
"""The limit of events if none is given: a file of some megabytes, which browsers open at once."""

Limit = Annotated[int, Between(1, 20_000_000)]

_NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
_UNIT = r"\s*([a-zA-Z]*)"
_WINDOW = re.compile(rf"\s*(?:{_NUMBER}{_UNIT})?\s*-\s*(?:{_NUMBER}{_UNIT})?\s*")
_UNITS = ("ns", "us", "ms", "s")
_NEVER_PS = 2**63 - 1
WHOLE_PS = 0, _NEVER_PS, 20_000_000
"""Begin and end of all virtual time, and the highest limit of events."""


@checked
@dataclass(frozen=True)
class Options:
    """What a timeline records, and into which file.

    Attributes
    ----------
    path
        The file, compressed if its name ends in ``.gz``.
    window
        The part of virtual time to record, as ``10us-20us``, ``10-20us``, ``10us-`` or ``-20us``;
        all if empty. The units are ns, us, ms and s.
    limit
        The most slices and marks to record. The first ones stay; the file says how many are left
        out. The arrows between slices come with them.
    """

    path: FilePath
    window: str = ""
    limit: Limit = LIMIT

    def __post_init__(self) -> None:
        self.range_ps()
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise InvalidArgument(f"{self.path}: the folder {folder} does not exist; make it first")
        check_output(Path(self.path), "timeline path")

    def range_ps(self) -> tuple[int, int, int]:
        """Return begin and end of the window in picoseconds, and the limit of events."""
        return *_range_ps(self.window), self.limit


def _range_ps(window: str) -> tuple[int, int]:
    found = _WINDOW.fullmatch(window) if window else None
    if window and (found is None or not any(found.groups())):
        raise InvalidArgument(f"window is {shown(window)}; give two times, such as 10us-20us")
    if found is None:
        return 0, _NEVER_PS
    first, first_unit, last, last_unit = found.groups()
    begin = _picoseconds(window, first, first_unit or last_unit) if first else 0
    end = _picoseconds(window, last, last_unit) if last else _NEVER_PS
    if begin >= end:
        raise InvalidArgument(f"window is {shown(window)}; its end must be later than its begin")
    return begin, end


def _picoseconds(window: str, number: str, unit: str | None) -> int:
    if unit not in _UNITS:
        raise InvalidArgument(
            f"window is {shown(window)}; give each time a unit, one of {', '.join(_UNITS)}, as in "
            "10us-20us"
        )
    nanoseconds = convert(float(number), unit, "ns")
    if nanoseconds > 1e15:
        raise InvalidArgument(f"window is {shown(window)}; its times go up to 1e6s")
    return round(nanoseconds * 1000)


class Timeline:
    """A timeline of a simulated cluster that is being recorded; see `SimulatedCluster.timeline`.

    Its end writes the file: the end of the ``with`` block, `close`, or the end of the cluster.

    Attributes
    ----------
    path
        The file.
    events
        Number of slices and marks in the file, known at the end.
    left_out
        Number of those beyond the limit.
    """

    def __init__(self, options: Options, cluster: Any, keeps_on: bool = False) -> None:
        self.path = Path(options.path)
        self._keeps_on = keeps_on
        self.events = self.left_out = 0
        self._line = f"{self.path}: being recorded"
        self._cluster = cluster
        self._is_open = True
        cluster.start_timeline(*options.range_ps())

    def __enter__(self) -> Timeline:  # noqa: PYI034 - typing.Self is of Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the recording and write the file. Idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        recorded = self._cluster.stop_timeline()
        self.events, self.left_out = recorded.events, recorded.left_out
        self._line = line(self.path, recorded)
        try:
            write(self.path, recorded)
        except Error as error:
            if not self._keeps_on:
                raise
            self._line = str(error)  # the numbers of the point are worth more than the file

    def __str__(self) -> str:
        """Return a line for people."""
        return self._line


def line(path: FilePath, recorded: Any) -> str:
    """Return a line for people on the file of a native timeline."""
    text = f"{path}: {recorded.events} events"
    if not recorded.left_out:
        return text
    begin = f"{recorded.complete_until_ps / 1e6:.3f}us"
    return (
        f"{text}; {recorded.left_out} more, from {begin} on, are left out: choose a window, such "
        f"as {begin}-, or a higher limit"
    )


def write(path: Path, recorded: Any) -> None:
    """Write a native timeline to a file, which takes the place of an old one when it is whole."""
    with replacing(path) as file:
        if path.suffix != ".gz":
            recorded.write(file.write)
            return
        # Neither a name nor a time: equal runs give equal files.
        with gzip.GzipFile("", "wb", compresslevel=3, fileobj=file, mtime=0) as packed:
            recorded.write(packed.write)


_begin: Callable[[Any], Timeline] | None = None


def begin(cluster: Any) -> Timeline | None:
    """Begin the timeline of a new simulated cluster, if a `Recorder` wants it."""
    return None if _begin is None else _begin(cluster)


class Recorder(Executor):
    """Measures points in this process, and records each simulated cluster that they make.

    Attributes
    ----------
    timelines
        What it has recorded. The file of a second cluster has the ending ``-2``, and so on.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.timelines: list[Timeline] = []

    def submit(self, function: Any, /, *args: Any, **keywords: Any) -> Future[Any]:
        """Call the function now."""
        future: Future[Any] = Future()
        with self._recording():
            try:
                future.set_result(function(*args, **keywords))
            except Exception as error:
                future.set_exception(error)
        return future

    @contextmanager
    def _recording(self) -> Iterator[None]:
        global _begin
        with ExitStack() as stack:

            def begin_next(cluster: Any) -> Timeline:
                options = Options(self._next_path(), self.options.window, self.options.limit)
                timeline = stack.enter_context(Timeline(options, cluster, keeps_on=True))
                self.timelines.append(timeline)
                return timeline

            _begin = begin_next
            try:
                yield
            finally:
                _begin = None

    def _next_path(self) -> Path:
        path = Path(self.options.path)
        if not self.timelines:
            return path
        stem, dot, ending = path.name.partition(".")
        return path.with_name(f"{stem}-{len(self.timelines) + 1}{dot}{ending}")
