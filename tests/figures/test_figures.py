"""Figures have a paper's width, say what was measured, and keep legends off the data."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from experiments import _axes
from pyrdma import claims, conditions, figure_names, figures
from pyrdma.data import COLUMNS, OVERSUBSCRIBED, Data
from pyrdma.result import Result, Sample
from tests.figures.faults import faults, legends

DPI = 300


def data(repetitions: int = 1, flags: Mapping[int, str] | None = None) -> Data:
    base: dict[str, Any] = {**dict.fromkeys(COLUMNS, ""), "node": -1, "thread": -1, "seed": 1}
    base |= {"metric": "rate", "unit": "op/s", "fabric": "shm"}
    rows = [
        {**base, "n": n, "value": n * (10 + r), "repetition": r, "flags": (flags or {}).get(n, "")}
        for n in (1, 2, 4)
        for r in range(repetitions)
    ]
    return Data(pd.DataFrame(rows))


def drawn(rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, list[Any]]:
    """Return a figure with two lines in each panel, and its panels."""
    figure, axes = figures.new(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        ax.plot([1, 2, 3], [1, 4, 2], label="a series of a long name")
        ax.plot([1, 2, 3], [2, 1, 3], label="another series of a long name")
        ax.set(xlabel="Requests under way", ylabel="Throughput of all the nodes together (M op/s)")
    return figure, list(axes.flat)


def picture(path: Path) -> Image.Image:
    return Image.open(io.BytesIO(path.read_bytes()))


def last_dark_row(image: Image.Image) -> int:
    """Return the number of the lowest row with ink: in a figure, that of its legend."""
    ink = image.convert("L").point([value < 128 for value in range(256)])
    return (ink.getbbox() or (0, 0, 0, 0))[3]


def labels(ax: Any) -> list[str]:
    return [str(text) for text in ax.get_legend_handles_labels()[1]]


@pytest.mark.parametrize(
    ("columns", "options", "inches"),
    [(1, {}, 3.33), (2, {}, 7.0), (1, {"wide": True}, 7.0), (1, {"height": 4.0}, 3.33)],
)
def test_files_have_the_width_of_a_column_or_a_page(
    columns: int, options: dict[str, Any], inches: float, tmp_path: Path
) -> None:
    figure, _ = drawn(1, columns, **options)
    png, pdf = figures.save(figure, tmp_path, "f")
    width, height = picture(png).size
    assert width == round(inches * DPI)
    assert height >= DPI * options.get("height", 2.2)
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", pdf.read_bytes())
    assert box is not None
    assert float(box[1]) == pytest.approx(72 * inches, abs=0.1)


def test_text_has_8_points() -> None:
    ax = drawn()[1][0]
    assert {ax.xaxis.label.get_fontsize(), ax.title.get_fontsize()} == {8.0}
    assert all(t.get_fontsize() >= 7 for t in ax.get_xticklabels())


def test_metadata_and_caption_say_what_was_measured(tmp_path: Path) -> None:
    about = "Fabric sim, profile cx5, quick; 3 points, n = 1 each, seed 1."
    first, panels = drawn()
    panels[0].lines[1].remove()
    figures.legend_below(panels)
    png, pdf = figures.save(first, tmp_path, "f", title="A title", about=about)
    image = picture(png)
    assert (image.info["Title"], image.info["Description"]) == ("A title", about)
    assert b"/Title (A title)" in pdf.read_bytes()
    assert about.encode() in pdf.read_bytes()
    second, panels = drawn()
    panels[0].lines[1].remove()
    figures.legend_below(panels)
    below, _ = figures.save(second, tmp_path, "g", about=about, caption=True)
    taller = picture(below)
    assert taller.width == image.width
    assert taller.height > image.height
    assert abs(last_dark_row(taller.crop((0, 0, *image.size))) - last_dark_row(image)) < 4
    assert min(taller.crop((0, image.height, *taller.size)).convert("L").tobytes()) < 100


def one_legend(panels: list[Any]) -> None:
    panels[0].legend(loc="upper left")


def one_each(panels: list[Any]) -> None:
    for number, ax in enumerate(panels):
        ax.plot([1, 2], [3, 3], label=f"only here: {number}")
        ax.legend(loc="center")


def below_all(panels: list[Any]) -> None:
    figures.legend_below(panels, "what they are")


@pytest.mark.parametrize("legend", [one_legend, one_each, below_all])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 2)])
def test_legends_lie_beside_the_data(
    legend: Callable[[list[Any]], None], rows: int, columns: int, tmp_path: Path
) -> None:
    figure, panels = drawn(rows, columns)
    legend(panels)
    figures.save(figure, tmp_path, "f")
    assert faults(figure) == []
    assert len(legends(figure)) == (len(panels) if legend is one_each else 1)
    heights = [ax.get_window_extent().height / figure.dpi for ax in panels]
    assert min(heights) > 1  # the figure grew; the panels kept their room


def test_faults_are_found() -> None:
    figure, (ax, other) = drawn(1, 2)
    figure.set_figwidth(5)
    ax.legend(loc="center")
    ax.bar([1], [2])
    ax.set_yscale("log")
    for each in (ax, other):
        each.set_title("same")
    assert len(faults(figure)) >= 4


def test_values_on_a_logarithmic_axis_are_dots() -> None:
    _, ax = figures.new()
    figures.bars(ax, ["a", "b"], {"x": [1.0, 100.0], "y": [2.0, 3.0]}, values="{:.0f}", log=True)
    assert ax.get_yscale() == "log"
    assert not ax.containers
    assert [line.get_linestyle() for line in ax.lines] == ["None", "None"]
    assert [t.get_text() for t in ax.texts] == ["1", "100", "2", "3"]


def test_oversubscribed_points_have_a_ring() -> None:
    _, ax = figures.new()
    figures.line(ax, data(flags={4: OVERSUBSCRIBED}), "rate", "n", label="a")
    assert labels(ax) == ["a", "more busy threads than cores"]
    assert [list(line.get_xdata()) for line in ax.lines] == [[1, 2, 4], [4]]


def test_whole_numbers_have_no_fractions_between_them(tmp_path: Path) -> None:
    figure, (left, right) = figures.new(1, 2)
    left.plot([1, 3], [1, 2], label="whole")
    right.plot([1, 1.5, 3], [1, 2, 3], label="parts")
    figures.save(figure, tmp_path, "f")
    assert all(float(x).is_integer() for x in left.get_xticks())
    assert not all(float(x).is_integer() for x in right.get_xticks())


def test_markers_at_the_edge_are_whole_and_lines_end_there(tmp_path: Path) -> None:
    figure, ax = figures.new()
    ax.plot([1, 2], [0, 1], "o-", label="inside")
    ax.plot([1, 2], [0, 9], label="leaves")
    ax.plot([], [], "o", label="for the legend")
    ax.set_ylim(0, 2)
    ax.legend()
    figures.save(figure, tmp_path, "f")
    assert [line.get_clip_on() for line in ax.lines] == [False, True, True]
    assert ax.get_window_extent().height > 100


def test_rings_are_no_series(tmp_path: Path) -> None:
    figure, ax = figures.new()
    for label in ("a", "b", "c"):
        figures.line(
            ax, data(flags={2: OVERSUBSCRIBED, 4: OVERSUBSCRIBED}), "rate", "n", label=label
        )
    _axes.layer(ax)
    sizes = [line.get_markersize() for line in ax.lines]
    assert sizes[::2] == sorted(sizes[::2], reverse=True)
    assert [ring - own for own, ring in zip(sizes[::2], sizes[1::2], strict=True)] == [
        pytest.approx(figure_names.RING_WIDER)
    ] * 3
    figures.save(figure, tmp_path, "f")
    assert [t.get_text() for t in ax.texts] == ["a, b, c"]


@pytest.mark.parametrize(("cores", "flags"), [(2, ["oversubscribed"]), (3, [])])
def test_more_threads_than_cores_are_flagged(cores: int, flags: list[str]) -> None:
    samples = [Sample(n, 0, "ops", 1.0, "count") for n in (0, 1)]
    samples += [Sample(-1, -1, "rate", 1.0, "op/s"), Sample(0, 0, "bytes", 1.0, "B")]
    samples += [Sample(0, -1, "ops", 1.0, "count"), Sample(2, -1, "ops", 1.0, "count")]
    result = Result(samples, {}, fabric="shm", clock="real", seed=1, params={})
    with conditions.collect() as found:
        conditions.flag_threads(result, cores)
    assert found.flags == flags


@pytest.mark.parametrize("legend", [one_legend, below_all])
def test_the_papers_numbers_are_left_out(
    legend: Callable[[list[Any]], None], tmp_path: Path
) -> None:
    claim = next(c for c in claims.load().values() if isinstance(c.value, list) and c.number)
    figure, (ax,) = drawn()
    figures.overlay(ax, [(claim, 1)])
    assert [t for t in labels(ax) if t.startswith("paper:") and t.endswith(", range")]
    with figures.without_paper():
        figure, (ax,) = drawn()
        figures.overlay(ax, [(claim, 1)])
        figures.paper_says(ax, "this above that")
        ax.axhline(1, label="paper: a level")
        ax.axvspan(1, 2, label="paper: a range")
        legend([ax])
        figures.save(figure, tmp_path, "f")
    assert (labels(ax), ax.get_title()) == (labels(drawn()[1][0]), "")
    told = [t.get_text() for each in legends(figure) for t in each.get_texts()]
    assert not [t for t in told if t.startswith("paper")]


def test_series_that_coincide_are_named_at_their_line(tmp_path: Path) -> None:
    figure, (ax,) = drawn()
    ax.plot([1, 2, 3], [1.001, 4, 2], label="same")
    figures.save(figure, tmp_path, "f")
    assert [t.get_text() for t in ax.texts] == ["a series of a long name\nsame"]
    assert faults(figure) == []


@pytest.mark.parametrize(
    ("beside", "leaders"),
    [
        ({}, [False]),
        ({"linestyle": "none", "marker": "o"}, [True]),  # the name lies beyond the dots
        ({"linestyle": "-"}, []),  # a leader would cross the lines
    ],
)
def test_names_of_lines_cover_nothing(
    beside: dict[str, str], leaders: list[bool], tmp_path: Path
) -> None:
    figure, ax = figures.new()
    for label in ("a first series", "a second series"):
        ax.plot(range(9), [1] * 9, "o-", label=label)
    for y in (1.08, 0.92) if beside else ():
        ax.plot([x + 0.5 for x in range(-1, 9)], [y] * 10, label="_", **beside)
    ax.errorbar([], [], [], label="for the legend")
    ax.set_ylim(0, 2)
    figures.save(figure, tmp_path, "f")
    assert faults(figure) == []
    assert [t.arrow_patch.get_visible() for t in ax.texts] == leaders


def test_lines_without_a_free_place_keep_to_the_legend(tmp_path: Path) -> None:
    figure, ax = figures.new()
    for y in [*range(40), 20]:
        ax.plot([0, 8], [y, y], label=f"a series of a long name {y}, number {len(ax.lines)}")
    figures.save(figure, tmp_path, "f")
    assert not ax.texts


def test_names_of_bars_do_not_overlap(tmp_path: Path) -> None:
    figure, ax = figures.new()
    names = [f"a name of bar {n}" for n in range(7)]
    figures.bars(ax, names, {"x": [1.0] * 7})
    figures.save(figure, tmp_path, "f")
    assert {t.get_rotation() for t in ax.get_xticklabels()} == {30}


def test_a_bound_keeps_its_arrow() -> None:
    claim = next(c for c in claims.load().values() if c.bound and c.number)
    _, ax = figures.new()
    figures.overlay(ax, [(replace(claim, series="x"), 1)])
    assert len(ax.texts) == 1
