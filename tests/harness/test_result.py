"""Results: merging, totals, and files."""

from __future__ import annotations

import zlib
from base64 import b64decode
from pathlib import Path

import pandas as pd
import pytest
from hdrh.histogram import HdrHistogram

from pyrdma import InvalidArgument, Result, figures
from pyrdma.claims import Claim, load
from pyrdma.data import Data
from pyrdma.result import SCHEMA, Sample
from tests.errors import raises


def payload(values: list[int]) -> bytes:
    """Return the uncompressed V2 encoding, as the native histogram gives it."""
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values:
        histogram.record_value(value)
    return zlib.decompress(b64decode(histogram.encode())[8:])


def result() -> Result:
    samples = [
        Sample(node, 0, metric, value, unit)
        for node, values in enumerate([(1000.0, 10.0, 5.0), (3000.0, 30.0, 7.0)])
        for metric, value, unit in zip(
            ("rate", "ops", "elapsed"), values, ("op/s", "count", "ns"), strict=True
        )
    ]
    histograms = {"read": [payload([100] * 99), payload([100_000])]}
    return Result(samples, histograms, fabric="sim", clock="virtual", seed=1)


def test_percentiles_come_from_merged_counts() -> None:
    latency = result().latency("read")
    assert latency.count == 100
    assert latency.percentile(99) == 100  # the mean of the two nodes' medians would be 50,050
    assert latency.percentile(99.9) == pytest.approx(100_000, rel=1e-3)
    assert latency.mean == pytest.approx((99 * 100 + 100_000) / 100, rel=1e-3)
    assert HdrHistogram.decode(latency.encode()).total_count == 100


def test_rates_and_counts_add_up_and_times_do_not() -> None:
    found = result()
    assert found.value("rate") == 4000
    assert found.value("ops") == 40
    with raises(InvalidArgument, "elapsed", 2):
        found.value("elapsed")
    with raises(InvalidArgument, "rat", "rate"):
        found.value("rat")
    with raises(InvalidArgument, "raed", "read"):
        found.latency("raed")


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    found = result()
    loaded = Result.load(found.save(tmp_path / "run"))
    assert loaded.samples == found.samples
    assert loaded.histograms == found.histograms
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "hist.parquet",
        "results.parquet",
        "run.json",
    ]
    (tmp_path / "run/run.json").write_text('{"schema": 99}')
    with raises(InvalidArgument, 99, SCHEMA):
        Result.load(tmp_path / "run")


def figure_data() -> Data:
    rows = [
        {"series": s, "n": n, "repetition": r, "value": float(n * (i + 1) + r)}
        for i, s in enumerate("abcdefgh")
        for n in (1, 2)
        for r in (0, 1)
    ]
    frame = pd.DataFrame(rows).assign(
        node=-1, thread=-1, metric="rate", unit="M req/s", fabric="shm", profile="cx5"
    )
    return Data(frame)


def test_series_differ_in_colour_marker_and_line_at_once() -> None:
    _, ax = figures.new()
    figures.line(ax, figure_data(), "rate", "n", by="series")
    lines = ax.get_lines()
    assert len(lines) == 8
    for look in ("get_color", "get_marker"):
        assert len({getattr(drawn, look)() for drawn in lines}) == 8
    assert len({str(drawn._dash_pattern) for drawn in lines}) == 8


def test_the_papers_numbers_are_hollow_and_named_once() -> None:
    known = load()
    peaks: list[tuple[Claim, int]] = [
        (known["krcore/f10b_verbs_peak"], 1),
        (known["krcore/f10d_verbs_peak"], 2),
        (known["krcore/f10b_dc_peak"], 2),
    ]
    _, ax = figures.new()
    figures.overlay(ax, peaks)
    assert all(line.get_markerfacecolor() == "none" for line in ax.get_lines()[::3])
    assert ax.get_legend_handles_labels()[1] == ["paper: verbs", "paper: KRCore(DC)"]
