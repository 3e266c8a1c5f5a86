"""Rates of products, as the benchmarks ask for them."""

from __future__ import annotations

import pytest

from chairlift import _native
from chairlift.kernels.file_formats import BITS_PER_WEIGHT

WEIGHTS = ["float32", "bfloat16", "int8", *(kept.name for kept in BITS_PER_WEIGHT)]


@pytest.mark.parametrize("isa", _native.available_isas())
@pytest.mark.parametrize("weights", WEIGHTS)
def test_every_level_multiplies_weights_of_every_format(
    weights: str, isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIRLIFT_ISA", isa)
    team = _native.ThreadTeam(1)
    assert team.gemm_rate(weights, 3, 256, 64, 1) > 0
    assert team.peak_rate(weights) > 0


def test_weights_without_a_kernel_are_refused() -> None:
    team = _native.ThreadTeam(1)
    with pytest.raises(ValueError, match=r"weights must be float32, .* or Q6_K, got Q5_K"):
        team.peak_rate("Q5_K")
    with pytest.raises(ValueError, match="weights must be"):
        team.gemm_rate("half", 1, 256, 32, 1)


@pytest.mark.parametrize(("weights", "block"), [("Q4_1", 32), ("Q6_K", 256)])
def test_inputs_must_fill_the_blocks_of_a_file(weights: str, block: int) -> None:
    with pytest.raises(ValueError, match=f"in_features must be a multiple of {block}.*got 48"):
        _native.ThreadTeam(1).gemm_rate(weights, 1, 48, 32, 1)


def test_a_product_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        _native.ThreadTeam(1).gemm_rate("int8", 0, 64, 32, 1)
