"""The spread of figures over seeds: bands, bars, derived numbers, and the note that names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from pyrdma import figure_layout, figure_spread, figures
from pyrdma.data import Data
from pyrdma.figure_names import SUM

SEEDS = {1: 1.0, 2: 1.5, 3: 1.2}


def table(seeds: dict[int, float], lacking: int | None = None) -> pd.DataFrame:
    """Return a rate of two series at three places, times the factor of each seed."""
    rows = [
        {"series": s, "n": n, "seed": seed, "value": factor * n * (10 if s == "b" else 1)}
        for seed, factor in seeds.items()
        for s in "ab"
        for n in (1, 2, 4)
        if not (seed == lacking and n == 2)
    ]
    same = {"experiment": "x/y", "fabric": "sim", "profile": "cx5", "metric": "rate", "unit": "x"}
    return pd.DataFrame(rows).assign(**same, repetition=0, node=-1, thread=-1)


def lines(data: Data) -> Any:
    fig, ax = figures.new()
    figures.line(ax, data, "rate", "n", by="series")
    return fig


def ratio(data: Data) -> Any:
    fig, ax = figures.new()
    a, b = (data.series("rate", "n", series=s) for s in "ab")
    ax.plot([1, 2, 4], list(b / a))
    return fig


def bars(data: Data) -> Any:
    fig, ax = figures.new()
    heights = [data.value("rate", series="a", n=n) for n in (1, 2)]
    figures.bars(ax, ["one", "two"], {"a": heights}, values="{:.1f}")
    ax.set_ylim(0, max(heights))
    return fig


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    plt.close("all")


def test_a_band_goes_from_the_least_to_the_largest_seed() -> None:
    figure, note = figure_spread.drawn(lines, table(SEEDS))
    [ax] = figure.axes
    assert len(ax.collections) == 2
    of_b = ax.collections[1].get_paths()[0].vertices
    assert {y for x, y in of_b if x == 4} == {40.0, 60.0}
    assert list(ax.lines[1].get_ydata()) == [12.0, 24.0, 48.0]
    assert note == "Bands: least to largest of 3 runs, a 75 % interval of the median."


def test_a_derived_number_has_the_range_that_it_has_within_the_seeds() -> None:
    figure, note = figure_spread.drawn(ratio, table(SEEDS))
    assert note == "Medians; 3 runs differ by less than 1 % of each axis."
    assert not figure.axes[0].collections


def test_bars_have_error_bars_and_their_numbers_stand_above_them() -> None:
    figure, note = figure_spread.drawn(bars, table(SEEDS))
    [ax] = figure.axes
    [error] = ax.collections
    assert [sorted(p[:, 1]) for p in error.get_segments()] == [[1.0, 1.5], [2.0, 3.0]]
    assert [text.xy[1] for text in ax.texts] == [1.5, 3.0]
    assert ax.get_ylim()[1] > 3.0
    assert note


def test_points_that_move_along_both_axes_have_bars_along_both() -> None:
    def curve(data: Data) -> Any:
        fig, ax = figures.new()
        rate = data.series("rate", "n", series="a")
        ax.plot(rate.to_list(), (10 * rate).to_list(), marker="o")
        return fig

    figure, _ = figure_spread.drawn(curve, table(SEEDS))
    upright, level = figure.axes[0].collections
    assert np.ptp(upright.get_segments()[0][:, 0]) == 0
    assert np.ptp(level.get_segments()[0][:, 1]) == 0


def test_a_point_that_a_seed_lacks_has_the_range_of_the_others() -> None:
    figure, note = figure_spread.drawn(lines, table(SEEDS, lacking=2))
    assert "of 2 to 3 runs, at least a 50 % interval" in note
    of_a = figure.axes[0].collections[0].get_paths()[0].vertices
    assert {y for x, y in of_a if x == 2} == {2.0, 2.4}
    assert {y for x, y in of_a if x == 4} == {4.0, 6.0}


def test_a_run_without_the_largest_value_of_a_parameter_is_left_out() -> None:
    def largest(data: Data) -> Any:
        fig, ax = figures.new()
        n = max(data.values_of("n"))
        figures.bars(ax, [f"{n} nodes"], {"a": [data.value("rate", series="a", n=n)]})
        return fig

    whole = table({1: 1.0, 2: 1.0, 3: 1.0})
    figure, note = figure_spread.drawn(largest, whole[(whole["seed"] != 3) | (whole["n"] < 4)])
    assert not figure.axes[0].collections
    assert note == "Medians; 2 runs differ by less than 1 % of each axis."


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax, rate: ax.scatter([1], [rate]),
        lambda ax, rate: ax.plot([1, 2], [rate, rate], label=f"peak {rate:.1f}"),
        lambda ax, rate: ax.plot([1, 2], [rate, rate], label="all", gid=SUM),
    ],
)
def test_nothing_is_said_of_what_was_not_compared(draw: Callable[[Any, float], None]) -> None:
    def figure(data: Data) -> Any:
        fig, ax = figures.new()
        ax.plot([1, 2], [5, 5], label="constant")
        draw(ax, data.value("rate", series="a", n=4))
        return fig

    _, note = figure_spread.drawn(figure, table(SEEDS))
    assert note == ""


def test_a_run_that_cannot_be_drawn_alone_is_left_out() -> None:
    lacking = table(SEEDS, lacking=2)
    with pytest.raises(ValueError):  # noqa: PT011 - of Matplotlib: the lengths differ
        ratio(Data(lacking[lacking["seed"] == 2]))
    plt.close("all")
    for draw in (ratio, bars):
        figure_spread.drawn(draw, lacking)
    assert len(plt.get_fignums()) == 2, "the figures of single runs are closed"
    assert "of 2 runs" in figure_spread.drawn(bars, lacking)[1]


def test_the_papers_numbers_have_no_spread() -> None:
    def paper(data: Data) -> Any:
        fig, ax = figures.new()
        ax.plot([1, 2], [data.value("rate", series="a", n=n) for n in (1, 2)], label="paper: a")
        return fig

    figure, note = figure_spread.drawn(paper, table(SEEDS))
    assert not figure.axes[0].collections
    assert note == "", "there are no other numbers"


def test_marks_of_busy_threads_are_no_lines() -> None:
    busy = table(SEEDS)
    busy["flags"] = np.where(busy["seed"] == 1, "oversubscribed", "")
    figure, note = figure_spread.drawn(lines, busy)
    of_b = figure.axes[0].collections[1].get_paths()[0].vertices
    assert {y for x, y in of_b if x == 4} == {40.0, 60.0}
    assert "3 runs" in note
    assert len(figure.axes[0].collections) == 2


def test_a_line_across_the_panel_has_a_span_across_it() -> None:
    def level(data: Data) -> Any:
        fig, ax = figures.new()
        ax.plot([100, 200], [0, 2])
        ax.axhline(data.value("rate", series="a", n=1), color="red")
        ax.set_xscale("log")
        return fig

    figure, note = figure_spread.drawn(level, table(SEEDS))
    [span] = figure.axes[0].patches
    corners = span.get_transform().transform(span.get_path().vertices)
    axes = figure.axes[0].transAxes.inverted().transform(corners)
    assert (axes[:, 0].min(), axes[:, 0].max()) == pytest.approx((0, 1))
    assert note


def test_limits_include_the_spread_on_every_side() -> None:
    def turned(data: Data) -> Any:
        fig, ax = figures.new()
        ends = [data.value("rate", series="a", n=n) for n in (1, 2)]
        bars = ax.barh([0, 1], ends)
        ax.bar_label(bars)
        ax.plot(ends, [0.2, 0.4], linestyle="none", marker="o")
        ax.set_xlim(2.4, 1.15)
        return fig

    figure, _ = figure_spread.drawn(turned, table(SEEDS))
    begin, end = figure.axes[0].get_xlim()
    assert begin > 3.0 > 1.0 > end, "the axis is still inverted"


def test_unusual_figures_are_drawn_as_they_are() -> None:
    def unusual(data: Data) -> Any:
        fig, (left, right) = figures.new(1, 2)
        rate = data.value("rate", series="a", n=1)
        left.bar([], [])
        left.bar(["p", "q"], [rate, 1.0])
        left.annotate("here", ("p", 1.0))
        left.annotate("corner", (1.0, 1.0), xycoords="axes fraction")
        right.plot([1, 2, 3], [rate, np.nan, rate], linestyle="none", marker="o", label="a")
        right.plot([1, 2, 3], [rate, 1.0, rate], label="b")
        right.plot([1, 2, 3], [rate, 1.0, rate], label="c")
        right.plot([], [])
        return fig

    figure, note = figure_spread.drawn(unusual, table(SEEDS))
    assert "3 runs" in note
    figure_layout.finish(figure)  # names the lines that coincide


@pytest.mark.parametrize(
    ("values", "runs", "words"),
    [
        ([2, 12], 12, "of 2 to 12 runs, at least a 50 % interval"),
        ([3, 1], 3, "of 3 runs, a 75 % interval of the median. Some places have a single run."),
        ([12], 12, "of 12 runs, a 99.9 % interval"),
        ([6], 6, "a 96.8 % interval"),
        ([30], 40, "of 30 runs (of 40, the first 30)"),
    ],
)
def test_the_note_states_the_least_number_of_values(
    values: list[int], runs: int, words: str
) -> None:
    assert words in figure_spread._note(values, {"bands"}, runs)
    assert figure_spread._note([1, 1], {"bands"}, runs) == ""
