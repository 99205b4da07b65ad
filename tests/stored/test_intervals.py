"""A table of results has intervals over seeds and repetitions, and shows itself."""

from __future__ import annotations

import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pyrdma as rd
from pyrdma.points import median_interval, needed_values
from pyrdma.runs import Options, execute
from pyrdma.table import Table
from pyrdma.units import readable
from tests.errors import raises, unnamed
from tests.harness.support import FAKE


def shm(out: Path, n: int | list[int], repetitions: int, **more: Any) -> Table:
    of_shm = {"out": out, "fabric": "shm", "repetitions": repetitions, **more}
    return rd.run(FAKE, set={"n": n}, **of_shm)


def test_each_point_has_its_median_and_interval(tmp_path: Path) -> None:
    table = shm(tmp_path, [1, 2], 6, seeds=(1, 2))
    found = table.ci("rate", level=0.9)
    assert len(found) == 4, "two values of n, and two labels"
    numbers = ["low", "median", "high", "mean", "values", "unit"]
    assert list(found) == ["behaviour", "n", "series", *numbers]
    for row in found.to_dict("records"):
        of_point = (table["n"] == row["n"]) & (table["series"] == row["series"])
        values = table[of_point]["value"]
        assert (row["low"], row["high"]) == median_interval(values, 0.9)
        assert (row["median"], row["mean"]) == (values.median(), values.mean())
        assert (row["values"], row["unit"]) == (12, "op/s")
    scaled = table.ci("rate", unit="Mop/s")
    assert scaled["median"].tolist() == pytest.approx((found["median"] / 1e6).tolist())
    assert set(scaled["unit"]) == {"Mop/s"}


def test_a_selection_and_a_loaded_folder_have_intervals(tmp_path: Path) -> None:
    shm(tmp_path, [1, 2], 6)
    loaded = rd.load(tmp_path)
    [row] = loaded[(loaded["n"] == 2) & (loaded["series"] == "half")].ci("rate").to_dict("records")
    assert row["low"] < row["median"] < row["high"]
    assert set(loaded.ci()["metric"]) == {"rate"}


def test_too_few_values_have_no_interval_and_say_how_many_are_needed(tmp_path: Path) -> None:
    table = shm(tmp_path, 1, 5)
    with pytest.warns(RuntimeWarning, match="at most 5 values, and an interval of 95 % needs 6"):
        found = table.ci("rate")
    assert found["low"].isna().all()
    assert found["median"].notna().all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table.ci("rate", level=0.9)["low"].notna().all()
    for level in (0.5, 0.9, 0.95, 0.99):
        least = needed_values(level)
        assert median_interval(range(least), level) is not None
        assert median_interval(range(least - 1), level) is None


def test_what_has_no_interval_is_named(tmp_path: Path) -> None:
    table = shm(tmp_path, 1, 1)
    with raises(rd.InvalidArgument, "'rat'", "rate"):
        table.ci("rat")
    with raises(rd.InvalidArgument, "level", 1):
        table.ci("rate", level=1)
    with raises(rd.InvalidArgument, "unit", "furlong"):
        table.intervals("rate", unit="furlong")
    with raises(rd.InvalidArgument, "seed", "scope"):
        table[["n", "metric", "value"]].ci("rate")
    twice = Table(pd.concat([table, table.assign(code="older")]))
    with raises(rd.InvalidArgument, "superseded", "code"):
        twice.ci("rate")


class Cells(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert tag != "img" or str(dict(attrs)["src"]).startswith("data:image/png;base64,iVBOR")

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def test_a_run_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    table = shm(tmp_path, [1, 2], 6)
    shown = Cells(table._repr_html_())
    assert shown.tags.count("img") == 1, "the figure"
    assert shown.tags.count("tr") == 5, "a head, and a row for each point and label"
    about = ("fake/numbers on shm", "6 repetitions", "95 %", "rate (Mop/s)", "behaviour=good")
    assert unnamed(shown.text, *about) == []
    quiet = Cells(table[table["n"] == 1]._repr_html_())
    assert "img" not in quiet.tags, "the figure has other rows, too"
    assert "img" not in Cells(rd.load(tmp_path)._repr_html_()).tags
    for hostile in (table.assign(experiment="<b>"), table.assign(seed=1, series="<b>")):
        assert "<b>" not in hostile._repr_html_(), "the second one has a seed twice"
    columns = table[["n", "value"]]
    assert columns._repr_html_() == pd.DataFrame(columns)._repr_html_()


def test_a_run_writes_the_intervals(tmp_path: Path) -> None:
    options = {"out": tmp_path, "settings": {"n": 1}}
    report = execute(FAKE, Options(seeds=range(1, 8), **options))  # type: ignore[arg-type]
    assert report.intervals == tmp_path / "fake/numbers/sim/intervals.csv"
    written = pd.read_csv(report.intervals)
    assert written["values"].tolist() == [7, 7]
    assert (written["low"] < written["high"]).all()
    assert execute(FAKE, Options(fabric="shm", repetitions=1, **options)).intervals is None  # type: ignore[arg-type]


def test_readable_units() -> None:
    assert [readable(v, "ns") for v in (0, 999, 1000, 2e9)] == ["ns", "ns", "us", "s"]
    assert readable(5e6, "op/s") == "Mop/s"
    assert readable(5e6, "furlong") == "furlong"
