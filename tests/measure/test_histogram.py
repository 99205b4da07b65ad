"""The histogram against the PyPI package of the same layout."""

import base64
import struct
import zlib

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from pyrdma import InvalidArgument
from pyrdma._core.measure import Histogram
from tests.errors import raises

HIGHEST = 3600 * 10**9
PERCENTS = [0.0, 0.1, 1.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 100.0]


def compressed(encoded: bytes) -> str:
    """Wrap the payload in the other reader's format: compressed, base64."""
    body = zlib.compress(encoded)
    return base64.b64encode(struct.pack(">II", 0x1C849314, len(body)) + body).decode()


def both(values: np.ndarray) -> tuple[Histogram, HdrHistogram]:
    ours, theirs = Histogram(), HdrHistogram(1, HIGHEST, 3)
    ours.record_array(values)
    for value in values.tolist():
        theirs.record_value(value)
    return ours, theirs


def random_values(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shapes = [
        rng.integers(0, 50, 500),
        rng.lognormal(8, 2, 800).astype(np.int64),
        (2.0 ** rng.uniform(0, 41.7, 600)).astype(np.int64),
        np.repeat(rng.integers(1, HIGHEST, 3), rng.integers(1, 300, 3)),
    ]
    chosen = [shape for shape in shapes if rng.random() < 0.6] or [shapes[0]]
    values: np.ndarray = np.minimum(np.concatenate(chosen), HIGHEST)
    return values


@pytest.mark.parametrize("seed", range(12))
def test_percentiles_equal_the_other_implementation(seed: int) -> None:
    ours, theirs = both(random_values(seed))
    assert ours.total == theirs.get_total_count()
    for percent in PERCENTS:
        assert ours.percentile(percent) == theirs.get_value_at_percentile(percent), percent
    assert ours.max == theirs.get_max_value()
    assert ours.min == theirs.get_min_value()
    assert ours.mean() == pytest.approx(theirs.get_mean_value(), rel=1e-12)


@pytest.mark.parametrize("seed", range(12, 18))
def test_other_reader_decodes_our_encoding(seed: int) -> None:
    ours, theirs = both(random_values(seed))
    decoded = HdrHistogram.decode(compressed(ours.encode()))
    assert decoded.get_total_count() == theirs.get_total_count()
    for percent in PERCENTS:
        assert decoded.get_value_at_percentile(percent) == theirs.get_value_at_percentile(percent)
    assert Histogram.decode(ours.encode()).encode() == ours.encode()


def test_we_decode_the_other_writers_encoding() -> None:
    ours, theirs = both(random_values(99))
    blob = base64.b64decode(theirs.encode())
    decoded = Histogram.decode(zlib.decompress(blob[8:]))
    assert decoded.total == ours.total
    assert [decoded.percentile(p) for p in PERCENTS] == [ours.percentile(p) for p in PERCENTS]


def test_merge_equals_recording_all() -> None:
    one, two = random_values(1), random_values(2)
    left, right, all_ = Histogram(), Histogram(), Histogram()
    left.record_array(one)
    right.record_array(two)
    all_.record_array(np.concatenate([one, two]))
    left.merge(right)
    assert left.encode() == all_.encode()


@pytest.mark.parametrize("broken", [b"", b"x" * 39, Histogram().encode()[:-1], b"\xff" * 64])
def test_broken_encodings_are_refused(broken: bytes) -> None:
    with raises(InvalidArgument, "histogram"):
        Histogram.decode(broken)
