"""The spread of figures over seeds: bands, bars, derived numbers, and the note that names them."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from pyrdma import figure_spread, figures
from pyrdma.data import Data

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
    assert note == "Bands and bars: least to largest of 3 runs, a 75 % interval."


def test_a_derived_number_has_the_range_that_it_has_within_the_seeds() -> None:
    figure, note = figure_spread.drawn(ratio, table(SEEDS))
    assert note == "Medians of 3 runs, which differ by less than 1 % of each axis."
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
    figure, _ = figure_spread.drawn(lines, table(SEEDS, lacking=2))
    of_a = figure.axes[0].collections[0].get_paths()[0].vertices
    assert {y for x, y in of_a if x == 2} == {2.0, 2.4}
    assert {y for x, y in of_a if x == 4} == {4.0, 6.0}


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
    assert "less than" in note
    assert figure_spread.drawn(paper, table({1: 1.0}))[1] == "", "a single run"
