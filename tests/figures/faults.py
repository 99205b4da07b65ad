"""What a reviewer of a paper would find wrong in a finished figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

from matplotlib.path import Path
from matplotlib.text import Text

from pyrdma import figures


def faults(figure: Any) -> list[str]:
    """Return the faults of a figure whose layout is final."""
    figure.draw_without_rendering()  # labels may have their places from a file's resolution
    checks = (_size, _legends, _bars, _titles, _edges, _texts)
    return [fault for check in checks for fault in check(figure)]


def legends(figure: Any) -> list[Any]:
    """Return the legends of a figure and of its axes."""
    own = [ax.get_legend() for ax in figure.axes]
    return [*figure.legends, *(legend for legend in own if legend is not None)]


def _size(figure: Any) -> Iterator[str]:
    width = figure.get_figwidth()
    if width not in (figures.COLUMN, figures.PAGE):
        yield f"it is {width} inches wide"


def _legends(figure: Any) -> Iterator[str]:
    boxes = [ax.get_window_extent() for ax in figure.axes if ax.axison and ax.get_visible()]
    for legend in legends(figure):
        if any(legend.get_window_extent().overlaps(box) for box in boxes):
            yield f"a legend lies over data: {[t.get_text() for t in legend.get_texts()]}"


def _bars(figure: Any) -> Iterator[str]:
    for ax in figure.axes:
        if any(hasattr(c, "patches") for c in ax.containers) and ax.get_yscale() == "log":
            yield f"bars on a logarithmic axis: {ax.get_ylabel()}"


def _titles(figure: Any) -> Iterator[str]:
    titles = [ax.get_title().split("\n") for ax in figure.axes if ax.get_visible()]
    own = Counter("\n".join(t for t in each if not t.startswith("paper:")) for each in titles)
    yield from (
        f"{count} panels are titled {title!r}"
        for title, count in own.items()
        if title and count > 1
    )


def _edges(figure: Any) -> Iterator[str]:
    outer = figure.bbox.padded(1.5)
    texts = [t for ax in figure.axes for t in (ax.title, ax.xaxis.label, ax.yaxis.label)]
    texts += [t for legend in legends(figure) for t in legend.get_texts()]
    for text in texts:
        box = text.get_window_extent()
        inside = outer.x0 <= box.x0 and box.x1 <= outer.x1 and outer.y0 <= box.y0
        if text.get_text() and not (inside and box.y1 <= outer.y1):
            yield f"{text.get_text()!r} is cut off"


def _texts(figure: Any) -> Iterator[str]:
    for ax in figure.axes:
        # The extent of an annotation would include its arrow.
        boxes = [(t.get_text(), Text.get_window_extent(t)) for t in ax.texts if t.get_text()]
        for line, (text, box) in product(ax.lines, boxes):
            points = line.get_transform().transform(line.get_xydata().astype(float))
            drawn = line.get_linestyle() != "None" and Path(points).intersects_bbox(box, False)
            radius = line.get_markersize() / 2 * figure.dpi / 72
            marked = line.get_marker() not in ("", "None", None)
            if drawn or (marked and any(box.padded(radius).contains(*p) for p in points)):
                yield f"{text!r} lies over the line {line.get_label()!r}"
