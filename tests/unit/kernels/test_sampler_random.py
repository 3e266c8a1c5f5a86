"""The random numbers behind sampling: a published hash, and what is made of it."""

from __future__ import annotations

import numpy as np
import pytest

from chairlift.kernels.sampling import philox4x32
from chairlift.runner.sampler import uniform_draw


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (
            (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
            (0xFFFFFFFF, 0xFFFFFFFF),
            [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_gives_the_known_answers_of_its_authors(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: list[int]
) -> None:
    assert list(philox4x32(counter, key)) == expected


@pytest.mark.parametrize(
    ("seed", "position", "choice"), [(0, 0, 0), (7, 3, 2), (2**63 - 1, 2**31 - 1, 127), (-1, 5, 0)]
)
def test_a_draw_is_the_upper_53_of_the_first_64_bits(seed: int, position: int, choice: int) -> None:
    word = seed % 2**64
    bits = list(philox4x32((position, 0, choice, 0), (word % 2**32, word >> 32)))
    expected = ((bits[1] << 32 | bits[0]) >> 11) / 2**53
    assert uniform_draw(seed, position, choice) == expected


def test_draws_of_seeds_positions_and_choices_are_all_different() -> None:
    keys = [(s, p, c) for s in range(-5, 5) for p in range(10) for c in range(10)]
    assert len({uniform_draw(*key) for key in keys}) == len(keys)


@pytest.mark.parametrize("axis", ["seed", "position", "choice"])
def test_draws_along_each_axis_are_uniform_and_uncorrelated(axis: str) -> None:
    count = 20_000
    key = {"seed": (1, 0, 0), "position": (0, 1, 0), "choice": (0, 0, 1)}[axis]
    draws = np.array([uniform_draw(*(step * i for step in key)) for i in range(count)])
    observed = np.histogram(draws, bins=100, range=(0.0, 1.0))[0]
    chi_square = float(((observed - count / 100) ** 2 / (count / 100)).sum())
    # 99 degrees of freedom: mean 99, standard deviation 14.1; five of them either way.
    assert 29 < chi_square < 170
    # The correlation of n independent pairs has standard deviation 1 / sqrt(n).
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 5 / count**0.5
