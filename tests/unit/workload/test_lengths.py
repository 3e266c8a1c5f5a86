"""Lengths have the distribution that their text names."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from chairlift.errors import ConfigError
from chairlift.workload.lengths import parse_lengths


def draw(text: str, num: int = 100_000) -> NDArray[np.int64]:
    return parse_lengths(text).draw(num, np.random.default_rng(0))


def test_a_number_is_every_length() -> None:
    assert set(draw("128", 10).tolist()) == {128}


def test_uniform_lengths_include_both_bounds_and_are_even() -> None:
    values, counts = np.unique(draw("uniform:3-6"), return_counts=True)
    assert values.tolist() == [3, 4, 5, 6]
    assert counts / 100_000 == pytest.approx([0.25] * 4, abs=0.01)


def test_lognormal_lengths_have_the_median_and_p95_given() -> None:
    lengths = draw("lognormal:100,500")
    assert np.median(lengths) == pytest.approx(100, rel=0.02)
    assert np.percentile(lengths, 95) == pytest.approx(500, rel=0.03)
    assert lengths.min() >= 1


def test_lognormal_lengths_are_cut_to_the_maximum_given() -> None:
    lengths = draw("lognormal:100,500,300")
    assert lengths.max() == 300
    assert (lengths == 300).mean() == pytest.approx(0.131, abs=0.01)


def test_mixed_lengths_have_the_kinds_and_shares_given() -> None:
    lengths = draw("mix:0.9*uniform:1-3+0.1*uniform:50-60")
    assert set(lengths.tolist()) == {1, 2, 3, *range(50, 61)}
    assert (lengths >= 50).mean() == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "length must be at least 1 tokens, got 0"),
        ("many", "lengths must be N, uniform:LOW-HIGH, lognormal:MEDIAN,P95"),
        ("uniform:5", "got 'uniform:5'"),
        ("uniform:9-5", "the upper bound of uniform lengths must be at least 9 tokens, got 5"),
        ("lognormal:100", "got 'lognormal:100'"),
        ("lognormal:100,50", "need 1 <= MEDIAN < P95, got MEDIAN 100 and P95 50"),
        ("lognormal:100,inf", "need 1 <= MEDIAN < P95"),
        ("lognormal:1,2,3,4", "got 'lognormal:1,2,3,4'"),
        ("pareto:3", "got 'pareto:3'"),
        ("mix:0.5*3", r"above 0 and add up to 1, got \(0.5,\)"),
        ("mix:0*3+1*4", "above 0 and add up to 1"),
        ("mix:half*3+0.5*4", "got 'mix:half"),
        ("mix:0.5*3+0.5*many", "got 'many'"),
    ],
)
def test_impossible_lengths_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_lengths(text)
