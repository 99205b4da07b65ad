"""Check histories: the calls and results of clients, against the operations of an object.

A history is a file of JSON Lines, as Jepsen's checkers read it: a header with the model, then one
event per line. The models ``register``, ``kv``, ``queue``, ``lock`` and ``counter`` are checked for
linearizability by search; ``fifo``, ``mutex``, ``barrier``, ``multicast``, ``rpc`` and ``raft`` for
their invariants, in one pass.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ._program import checked_model
from .arguments import Between, FileName, FilePath, checked, shown
from .errors import InvalidArgument

__all__ = ["Operation", "Verdict", "check", "command", "draw", "models"]

CONFIGURATIONS = 10_000_000
"""Configurations that the search visits per object before it gives up."""


@dataclass(frozen=True)
class Operation:
    """One operation of the smallest window of a history that no order explains.

    Attributes
    ----------
    text
        The operation, such as ``write 3`` or ``read -> 1``; ``-> ?`` for an unknown outcome.
    call_ns, return_ns
        Its interval; the end is missing for an unknown outcome.
    call_event, return_event
        Numbers of its events, from 0.
    optional
        Whether the contradiction stands without the end of the operation.
    impossible
        Whether the operation must come next and cannot.
    place
        Its place in the longest order found, from 0.
    """

    process: int
    text: str
    call_ns: int
    return_ns: int | None
    call_event: int
    return_event: int | None
    optional: bool
    impossible: bool
    place: int | None


@dataclass(frozen=True)
class Verdict:
    """The verdict of a checker on a history.

    Attributes
    ----------
    answer
        ``yes``, ``no``, or ``unknown`` when the search gave up.
    key
        Key of the faulty object.
    text
        The violation in words; empty for ``yes``.
    window
        The smallest set of operations found that no order explains.
    events
        Numbers of the events in the violation.
    operations, objects, configurations
        Extent of the check: operations (with points of time), keys, steps of the search.
    """

    answer: str
    model: str
    key: bool | int | str | None
    text: str
    window: Sequence[Operation] = field(default_factory=list)
    events: Sequence[int] = field(default_factory=list)
    operations: int = 0
    objects: int = 0
    configurations: int = 0
    seed: int = 0

    @property
    def ok(self) -> bool:
        """Whether the history fits the model."""
        return self.answer == "yes"

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data, for JSON."""
        return asdict(self)


def models() -> list[str]:
    """Return the names of the models."""
    from ._core import check as native

    return native.model_names()


@checked
def check(
    history: FilePath | bytes,
    model: str | None = None,
    *,
    configurations: Annotated[int, Between(1, 2**64 - 1)] = CONFIGURATIONS,
) -> Verdict:
    """Check a history.

    Parameters
    ----------
    history
        Path of a file, or the bytes of one, as `Result.history` returns them.
    model
        One of `models()`; default: the model that the header names.
    configurations
        Bound of the search, per object; each takes about 40 bytes of memory.

    Raises
    ------
    InvalidArgument
        The file cannot be read, is not a history, is too long, or does not fit the model; the
        message names the line or event.
    KeyboardInterrupt
        The user pressed Ctrl-C; the check ends at once.
    """
    from ._core import check as native

    if model is not None:
        checked_model(model)
    name = "the history" if isinstance(history, bytes) else str(history)
    try:
        # Unbuffered: the native reader asks for a mebibyte at a time, and stops at its first error.
        with (
            io.BytesIO(history)
            if isinstance(history, bytes)
            else Path(history).open("rb", buffering=0)
        ) as file:
            found = native.check_file(file.read, model or "", configurations)
    except OSError as error:
        reason = error.strerror or error
        raise InvalidArgument(f"history {shown(name)} cannot be read: {reason}") from None
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error}") from None
    window = [Operation(**row) for row in found.pop("window")]
    return Verdict(window=window, **found)


MOST_CHARACTERS = 60
"""Most characters of a text in a picture."""


def _shortened(text: str) -> str:
    """Return a text of the checker, whose control characters are escaped, in its place's width."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 4]} ..."


MOST_BARS = 60
"""Most operations in a picture; of more, it shows those nearest to the impossible one."""


@checked
def draw(verdict: Verdict, folder: FilePath, name: FileName = "violation") -> list[Path]:
    """Draw the window of a violation as PNG and PDF: operations as bars, a row per process.

    The impossible operation is hatched and framed. An arrow joins it to the framed operation that
    it contradicts: the last of the longest order found, after which it must take effect. An
    operation whose outcome is unknown, or whose end does not matter, is open to the right. Numbers
    in brackets are places in the longest order. Without a window, nothing is drawn.
    """
    from . import figures

    if not verdict.window:
        return []
    bars = _nearest(verdict.window)
    begin = min(o.call_ns for o in bars)
    end = max([o.return_ns for o in bars if o.return_ns is not None] + [o.call_ns for o in bars])
    span = max(1, end - begin)
    pair = contradiction(bars)
    figure, ax = figures.new(wide=True)
    ax.set_xlim(-0.02 * span, 1.14 * span)
    labels = [_label(ax, operation, begin, operation in pair) for operation in bars]
    rows = _rows(bars, [_extent(ax, label, span) for label in labels], begin)
    count = max(rows.values()) + 1
    figure.set_figheight(0.9 + 0.42 * count)
    for number, operation in enumerate(bars):
        _bar(ax, operation, rows[number], begin, span, operation in pair)
        labels[number].xy = (labels[number].xy[0], rows[number])
    if len(pair) == 2:
        first, second = pair
        from_ns = first.call_ns if first.return_ns is None or first.optional else first.return_ns
        start = (from_ns - begin - 0.012 * span, rows[bars.index(first)])
        _join(ax, start, (second.call_ns - begin + 0.012 * span, rows[bars.index(second)]))
    _label_rows(ax, bars, rows)
    ax.set_ylim(count - 0.4, -0.6)
    ax.set_xlabel(f"time after {begin} ns (ns)")
    ax.grid(visible=False, axis="y")
    about = "" if verdict.key is None else f", key {shown(verdict.key)}"
    ax.set_title(f"{verdict.model}{about}: operations that no order explains", parse_math=False)
    return figures.save(figure, Path(folder), name, title=f"{verdict.model}{about}: violation")


def contradiction(window: Sequence[Operation]) -> list[Operation]:
    """Return the impossible operation of a window and the one that it contradicts, if there is one.

    That is the last operation of the longest order found. If no operation has a place, it is the
    last that ended before the impossible one began.
    """
    impossible = next((o for o in window if o.impossible), None)
    if impossible is None:
        return []
    placed = [o for o in window if o.place is not None]
    before = [o for o in window if o.return_ns is not None and o.return_ns <= impossible.call_ns]
    if placed:
        return [max(placed, key=lambda o: o.place or 0), impossible]
    return [*sorted(before, key=lambda o: o.return_ns or 0)[-1:], impossible]


def _join(ax: Any, start: tuple[float, int], end: tuple[float, int]) -> None:
    """Draw an arrow from the row of one bar to that of another."""
    (x0, y0), (x1, y1) = start, end
    edge = 0.32 * ((y1 > y0) - (y1 < y0))
    arrow = {"arrowstyle": "<->", "color": "#BB5566", "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", (x1, y1 - edge), (x0, y0 + edge), arrowprops=arrow, zorder=5)


def _nearest(window: Sequence[Operation]) -> list[Operation]:
    """Return at most `MOST_BARS` operations, by call, around the impossible one."""
    ordered = sorted(window, key=lambda o: (o.call_ns, o.call_event))
    middle = next((n for n, o in enumerate(ordered) if o.impossible), len(ordered) - 1)
    first = max(0, min(middle - MOST_BARS + 10, len(ordered) - MOST_BARS))
    return ordered[first : first + MOST_BARS]


def _rows(
    operations: Sequence[Operation], labels: Sequence[tuple[float, float]], begin: int
) -> dict[int, int]:
    """Return a row for each operation: processes in turn, with a further row per overlap.

    `labels` are the ends of each operation's label, on the axis that begins at `begin`.
    """
    rows: dict[int, int] = {}
    used = 0
    for process in sorted({o.process for o in operations}):
        taken: list[list[tuple[float, float]]] = []  # in each row of this process
        for number, operation in enumerate(operations):
            if operation.process != process:
                continue
            is_open = operation.return_ns is None or operation.optional
            to = float("inf") if is_open or operation.return_ns is None else operation.return_ns
            left, right = labels[number]
            left, right = min(left, operation.call_ns - begin), max(right, to - begin)
            row = 0
            while row < len(taken) and any(a < right and left < b for a, b in taken[row]):
                row += 1
            if row == len(taken):
                taken.append([])
            taken[row].append((left, right))
            rows[number] = used + row
        used += len(taken)
    return rows


def _label(ax: Any, operation: Operation, begin: int, contradicts: bool) -> Any:
    """Write the label of an operation, in row 0."""
    place = "" if operation.place is None else f"[{operation.place + 1}] "
    mark = "impossible: " if operation.impossible else place
    if contradicts and not operation.impossible:
        mark += "contradicts: "
    text = ax.annotate(
        mark + _shortened(operation.text),
        (operation.call_ns - begin, 0),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
        fontweight="bold" if contradicts else "normal",
        zorder=4,
        parse_math=False,  # a text of a history is not a formula
    )
    text.set_bbox({"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6})
    return text


def _extent(ax: Any, label: Any, span: int) -> tuple[float, float]:
    """Return where a label begins and ends on the time axis; a long one moves to the left."""
    to_ns = ax.transData.inverted()
    box = label.get_window_extent(ax.figure.canvas.get_renderer())
    (left, _), (right, _) = to_ns.transform([(box.x0, 0), (box.x1, 0)])
    beyond = max(0.0, right - 1.12 * span)
    label.xy = (label.xy[0] - beyond, 0)
    return left - beyond, right - beyond


def _bar(ax: Any, operation: Operation, row: int, begin: int, span: int, contradicts: bool) -> None:
    left = operation.call_ns - begin
    is_open = operation.return_ns is None or operation.optional
    right = 1.14 * span
    if operation.return_ns is not None and not operation.optional:
        right = operation.return_ns - begin
    width = max(right - left, 0.004 * span)
    top, height = row - 0.32, 0.64
    if operation.impossible:
        style = {"facecolor": "#F4D6DA", "hatch": "////", "edgecolor": "#BB5566", "linewidth": 2.0}
    elif contradicts:
        style = {"facecolor": "#F4D6DA", "edgecolor": "#BB5566", "linewidth": 2.0}
    elif is_open:
        style = {"facecolor": "#EEEEEE", "edgecolor": "none", "linewidth": 0.0}
    else:
        style = {"facecolor": "#C9D9EA", "edgecolor": "#004488", "linewidth": 1.0}
    ax.broken_barh([(left, width)], (top, height), **style)
    if is_open and not operation.impossible:
        # The bar has no right edge: the operation may end at any time, or never.
        line = {"color": "#555555", "linewidth": 1.0, "linestyle": (0, (3, 2))}
        for y in (top, top + height):
            ax.plot([left, left + width], [y, y], **line, marker="", zorder=3)
        ax.plot([left, left], [top, top + height], color="#555555", linewidth=1.0, marker="")


def _label_rows(ax: Any, operations: Sequence[Operation], rows: dict[int, int]) -> None:
    first: dict[int, int] = {}
    for number, operation in enumerate(operations):
        first[operation.process] = min(rows[number], first.get(operation.process, rows[number]))
    ax.set_yticks(list(first.values()), [f"process {process}" for process in first])


STATUS = {"yes": 0, "no": 1, "unknown": 3}
"""Exit status by answer; status 2 is an error."""


def command(path: Path, model: str | None, out: Path, as_json: bool) -> int:
    """Run ``pyrdma check``: print the verdict, then draw a violation; return the exit status.

    Nothing that happens to the picture changes what was printed before, nor the status. With
    `as_json` standard output has only the verdict, and standard error names the pictures.
    """
    verdict = check(path, model)
    if as_json:
        text = json.dumps(verdict.as_dict(), indent=1) + "\n"
    else:
        objects = "1 object" if verdict.objects == 1 else f"{verdict.objects} objects"
        said = {"yes": "is", "no": "is not", "unknown": "may be"}[verdict.answer]
        text = (
            f"{path}: {verdict.operations} operations on {objects}; the history {said} valid for "
            f"the model {verdict.model}\n{verdict.text}"
        )
    sys.stdout.write(text)
    sys.stdout.flush()
    for picture in _drawn(verdict, out, f"{path.stem}-violation"):
        print(picture if as_json else f"  {picture}", file=sys.stderr if as_json else sys.stdout)
    return STATUS[verdict.answer]


def _drawn(verdict: Verdict, out: Path, name: str) -> list[Path]:
    """Draw the verdict; say on standard error why there is no picture."""
    try:
        return draw(verdict, out, name)
    except ModuleNotFoundError as error:
        reason = f"the package {error.name} is missing"
    except Exception as error:  # The verdict stands, whatever the drawing library raises.
        reason = str(error) or type(error).__name__
    print(f"no picture in {out}: {reason}", file=sys.stderr)
    return []
