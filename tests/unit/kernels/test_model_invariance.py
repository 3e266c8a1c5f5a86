"""Promise 1 at the kernels' level: a token's logits have the same bits in every batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.unit.kernels.model_cases import (
    SPECS,
    Chunk,
    Floats,
    all_logits,
    make_batch,
    make_model,
    make_spec,
    make_weights,
)

from chairlift.kernels.cpu_model import CpuDtype, CpuModel, CpuQuantization
from chairlift.kernels.isa import available_isas

LENGTH = 70
ARITHMETIC: dict[str, tuple[CpuDtype, CpuQuantization]] = {
    "float32": ("float32", "none"),
    "bfloat16": ("bfloat16", "none"),
    "int8": ("bfloat16", "int8"),
}
SPEC = make_spec(num_heads=3, num_kv_heads=1, head_dim=32)


def tokens_of(sequence: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(sequence).integers(0, 97, LENGTH)]


def blocks_of(sequence: int, block_size: int) -> list[int]:
    count = -(-LENGTH // block_size)
    return list(range(sequence * count, (sequence + 1) * count))


def in_chunks(model: CpuModel, size: int, block_size: int = 16) -> Floats:
    """Logits of sequence 0, computed alone in chunks of that many tokens."""
    tokens, blocks = tokens_of(0), blocks_of(0, block_size)
    parts = []
    for first in range(0, LENGTH, size):
        chunk = Chunk(tokens, first, min(first + size, LENGTH), blocks)
        parts.append(all_logits(model, make_batch([chunk], block_size), SPEC.vocab_size))
    return np.concatenate(parts)


@pytest.fixture(params=available_isas())
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each instruction set level in turn, forced."""
    monkeypatch.setenv("CHAIRLIFT_ISA", request.param)
    return str(request.param)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_chunks_of_every_size_give_the_same_bits(arithmetic: str) -> None:
    dtype, quantization = ARITHMETIC[arithmetic]
    model = make_model(SPEC, dtype, quantization=quantization)
    whole = in_chunks(model, LENGTH)
    for size in (1, 7, 33, 64):
        np.testing.assert_array_equal(in_chunks(model, size), whole)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_threads_and_block_sizes_change_no_bit(arithmetic: str) -> None:
    dtype, quantization = ARITHMETIC[arithmetic]
    expected = in_chunks(make_model(SPEC, dtype, quantization=quantization, num_threads=1), LENGTH)
    for num_threads in (1, 2, 3):
        for block_size in (5, 16, 48):
            model = make_model(
                SPEC,
                dtype,
                quantization=quantization,
                num_threads=num_threads,
                block_size=block_size,
            )
            np.testing.assert_array_equal(in_chunks(model, LENGTH, block_size), expected)


def mixed(model: CpuModel, lasts: Sequence[int], order: Sequence[int]) -> dict[int, Floats]:
    """Last logits of one batch: sequence s has its tokens up to lasts[s], all but 3 computed."""
    before = [Chunk(tokens_of(s), 0, lasts[s] - 3, blocks_of(s, 16)) for s in order]
    model.forward(make_batch(before))
    chunks = [Chunk(tokens_of(s), lasts[s] - 3, lasts[s], blocks_of(s, 16)) for s in order]
    logits = all_logits(model, make_batch(chunks), SPEC.vocab_size)
    return {s: logits[3 * i : 3 * i + 3] for i, s in enumerate(order)}


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_neighbours_and_their_order_change_no_bit(arithmetic: str) -> None:
    dtype, quantization = ARITHMETIC[arithmetic]
    model = make_model(SPEC, dtype, quantization=quantization)
    lasts = [4, 17, 70, 33, 5]
    alone = {s: mixed(model, lasts, [s])[s] for s in range(5)}
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        for sequence, logits in mixed(model, lasts, order).items():
            np.testing.assert_array_equal(logits, alone[sequence])


def test_a_reused_block_full_of_nan_changes_no_bit() -> None:
    """Blocks are recycled without cleaning; what a broken sequence left must not come through."""
    spec = SPECS["odd sizes"]
    model = make_model(spec, "bfloat16")
    chunk = Chunk(tokens_of(0), 0, 20, [0, 1])
    expected = all_logits(model, make_batch([chunk]), spec.vocab_size)
    poisoned = make_model(spec, "bfloat16")
    broken = poisoned_embedding(poisoned)
    all_logits(poisoned, make_batch([Chunk([broken] * 64, 0, 64, [0, 1, 2, 3])]), spec.vocab_size)
    found = all_logits(poisoned, make_batch([chunk]), spec.vocab_size)
    np.testing.assert_array_equal(found, expected)


def poisoned_embedding(model: CpuModel) -> int:
    """Make one token's embedding NaN that sequence 0 does not use; return its id."""
    broken = next(t for t in range(97) if t not in tokens_of(0))
    embedding = make_weights(SPECS["odd sizes"])[0]
    embedding.data.view(np.float32).reshape(embedding.shape)[broken] = np.nan
    model.set_weight(embedding)
    return broken
