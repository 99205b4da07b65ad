"""The Zipf sampler against scipy's distribution."""

import numpy as np
import pytest
from scipy import stats

from pyrdma import InvalidArgument
from pyrdma._core.measure import zipf_sample
from tests.errors import raises


@pytest.mark.parametrize("exponent", [0.5, 0.99, 1.0, 1.2, 2.0])
@pytest.mark.parametrize("elements", [2, 17, 1000])
def test_frequencies_follow_the_distribution(elements: int, exponent: float) -> None:
    draws = 300_000
    sample = zipf_sample(elements, exponent, draws, seed=elements)
    expected = draws * stats.zipfian.pmf(np.arange(1, elements + 1), exponent, elements)
    seen = np.bincount(sample.astype(np.int64), minlength=elements)
    # Classes of at least ten expected draws: the rare ranks go into one.
    common = expected >= 10
    counts = np.append(seen[common], seen[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    if wanted[-1] == 0:
        counts, wanted = counts[:-1], wanted[:-1]
    assert stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue > 1e-4


def test_exponent_zero_is_uniform() -> None:
    seen = np.bincount(zipf_sample(10, 0.0, 100_000).astype(np.int64), minlength=10)
    assert stats.chisquare(seen).pvalue > 1e-4


def test_equal_seeds_give_equal_samples() -> None:
    assert np.array_equal(zipf_sample(100, 0.99, 50, seed=3), zipf_sample(100, 0.99, 50, seed=3))
    assert not np.array_equal(
        zipf_sample(100, 0.99, 50, seed=3), zipf_sample(100, 0.99, 50, seed=4)
    )


@pytest.mark.parametrize(("elements", "exponent"), [(0, 1.0), (5, -1.0), (5, float("nan"))])
def test_what_has_no_distribution_is_refused(elements: int, exponent: float) -> None:
    with raises(InvalidArgument, "zipf"):
        zipf_sample(elements, exponent, 1)
