"""The whole forward step: right values on every instruction set, and clear refusals."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.kernels.model_cases import (
    SPECS,
    Chunk,
    all_logits,
    make_batch,
    make_model,
    make_spec,
    make_weights,
)
from tests.unit.models.numpy_model import logits

from chairlift.errors import ConfigError, KernelInputError, ModelLoadError
from chairlift.kernels.cpu_model import CpuDtype, CpuModel, FlatBatch, KvCacheDtype
from chairlift.kernels.isa import available_isas
from chairlift.model_spec import ModelSpec, TensorType, WeightTensor

TOKENS = [int(t) for t in np.random.default_rng(7).integers(0, 97, 40)]


def reference_logits(spec: ModelSpec, tokens: list[int]) -> np.ndarray:
    model: Any = SimpleNamespace(spec=spec, weights=make_weights(spec))
    return logits(model, tokens)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SPECS)
def test_logits_equal_the_float64_reference(
    monkeypatch: pytest.MonkeyPatch, isa: str, dtype: CpuDtype, name: str
) -> None:
    monkeypatch.setenv("CHAIRLIFT_ISA", isa)
    spec = SPECS[name]
    model = make_model(spec, dtype)
    assert model.isa == isa
    other = Chunk(TOKENS[::-1], 0, 9, [9])
    sequence = Chunk(TOKENS, 0, 40, [4, 7, 1])
    found = all_logits(model, make_batch([other, sequence]), spec.vocab_size)[9:]
    expected = reference_logits(spec, TOKENS)
    scale = np.abs(expected).max()
    if dtype == "float32":
        np.testing.assert_allclose(found, expected, atol=2e-5 * scale, rtol=0)
    else:
        # Each of about 10 roundings on the way is off by 2 ** -8 / sqrt(12) of the value on
        # average; they add up like random steps.
        error = np.sqrt(((found - expected) ** 2).mean()) / np.sqrt((expected**2).mean())
        assert error < 10**0.5 * 2**-8


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SPECS)
def test_logits_with_int8_are_near_the_float64_reference(
    monkeypatch: pytest.MonkeyPatch, isa: str, dtype: CpuDtype, name: str
) -> None:
    monkeypatch.setenv("CHAIRLIFT_ISA", isa)
    spec = SPECS[name]
    model = make_model(spec, dtype, quantization="int8")
    other = Chunk(TOKENS[::-1], 0, 9, [9])
    sequence = Chunk(TOKENS, 0, 40, [4, 7, 1])
    found = all_logits(model, make_batch([other, sequence]), spec.vocab_size)[9:]
    expected = reference_logits(spec, TOKENS)
    error = np.sqrt(((found - expected) ** 2).mean()) / np.sqrt((expected**2).mean())
    # A step is 1/127 of a row's largest value, which is about 2.5 times its mean square root:
    # each of the about 20 roundings of rows and weights is off by 2.5 / 127 / sqrt(12).
    assert error < 20**0.5 * 2.5 / 127 / 12**0.5


def test_int8_takes_a_byte_per_weight_and_two_numbers_per_feature() -> None:
    spec = make_spec(hidden_size=64, intermediate_size=128, num_heads=4, num_layers=1)
    bytes_per_feature = {64: 64 + 8, 128: 128 + 8}
    in_layer = (96 + 64 + 2 * 128) * bytes_per_feature[64] + 64 * bytes_per_feature[128]
    embedding_and_head = 2 * 128 * bytes_per_feature[64]  # 97 rows are padded to 128
    model = make_model(spec, "bfloat16", quantization="int8")
    assert model.weight_bytes == in_layer + embedding_and_head


def test_an_unknown_quantization_is_refused() -> None:
    quantization: Any = "int4"
    with pytest.raises(KernelInputError, match="quantization must be none or int8, got int4"):
        make_model(make_spec(), "bfloat16", quantization=quantization)


def test_rows_of_llama_files_are_put_into_the_order_of_the_rotation() -> None:
    """GGUF alternates rows of the two halves; loading such a file must not change the logits."""
    spec = SPECS["head_dim 32, tied"]
    model = make_model(spec, "float32")
    expected = all_logits(model, make_batch([Chunk(TOKENS, 0, 20, [0, 1])]), spec.vocab_size)
    for tensor in make_weights(spec):
        part = tensor.name.split(".")[-1]
        if part in ("q_proj", "k_proj"):
            heads = spec.num_heads if part == "q_proj" else spec.num_kv_heads
            rows = tensor.data.view(np.float32).reshape(heads, 2, spec.head_dim // 2, -1)
            mixed = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(-1).view(np.uint8)
            model.set_weight(replace(tensor, data=mixed, interleaved_heads=heads))
    found = all_logits(model, make_batch([Chunk(TOKENS, 0, 20, [0, 1])]), spec.vocab_size)
    np.testing.assert_array_equal(found, expected)


def test_weights_are_read_in_their_storage_format() -> None:
    spec = make_spec()
    model = make_model(spec, "bfloat16")
    expected = all_logits(model, make_batch([Chunk(TOKENS, 0, 9, [0])]), spec.vocab_size)
    for tensor in make_weights(spec):
        words = tensor.data.view(np.uint32)
        upper = np.ascontiguousarray((words >> 16).astype(np.uint16)).view(np.uint8)
        model.set_weight(replace(tensor, tensor_type=TensorType.BF16, data=upper))
    found = all_logits(model, make_batch([Chunk(TOKENS, 0, 9, [0])]), spec.vocab_size)
    np.testing.assert_array_equal(found, expected)


def test_logits_of_chosen_rows_come_in_the_order_asked_for() -> None:
    spec = make_spec()
    model = make_model(spec, "bfloat16")
    every = all_logits(model, make_batch([Chunk(TOKENS, 0, 30, [0, 1])]), spec.vocab_size)
    rows = np.array([29, 3, 3, 0], np.int32)
    out = np.empty((4, spec.vocab_size), np.float32)
    model.compute_logits(rows, out)
    np.testing.assert_array_equal(out, every[rows])


def test_more_rows_than_a_batch_has_tokens_can_be_asked_for() -> None:
    spec = make_spec()
    model = make_model(spec, "float32", max_num_batched_tokens=8)
    every = all_logits(model, make_batch([Chunk(TOKENS, 0, 8, [0])]), spec.vocab_size)
    rows = np.tile(np.arange(8, dtype=np.int32), 3)
    out = np.empty((24, spec.vocab_size), np.float32)
    model.compute_logits(rows, out)
    np.testing.assert_array_equal(out, every[rows])


def test_memory_is_counted_once_for_tied_embeddings() -> None:
    tied, untied = SPECS["head_dim 32, tied"], SPECS["head_dim 32, tied"]
    untied = replace(untied, tie_word_embeddings=False)
    difference = (
        make_model(untied, "bfloat16").weight_bytes - make_model(tied, "bfloat16").weight_bytes
    )
    # 130 rows are padded to 160, a multiple of 32.
    assert difference == 160 * tied.hidden_size * 2


def test_kv_bytes_per_block_cover_all_layers() -> None:
    spec = SPECS["head_dim 32, tied"]
    model = make_model(spec, "bfloat16")
    assert model.kv_bytes_per_block(16) == 2 * (2 * 32) * 2 * 2 * 16


@pytest.mark.parametrize(
    ("dtype", "kv_cache_dtype", "bytes_per_head"),
    [
        ("float32", "auto", 4 * 32),
        ("bfloat16", "auto", 2 * 32),
        ("bfloat16", "float32", 4 * 32),
        ("float32", "bfloat16", 2 * 32),
        ("float32", "int8", 32 + 2),  # a scale of two bytes
    ],
)
def test_the_type_of_the_cache_decides_its_size(
    dtype: CpuDtype, kv_cache_dtype: KvCacheDtype, bytes_per_head: int
) -> None:
    spec = SPECS["head_dim 32, tied"]
    model = make_model(spec, dtype, kv_cache_dtype=kv_cache_dtype)
    assert model.kv_bytes_per_block(16) == 2 * 2 * 2 * 16 * bytes_per_head


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_with_an_int8_cache_are_near_the_reference(dtype: CpuDtype) -> None:
    spec = SPECS["head_dim 64, all biases"]
    model = make_model(spec, dtype, kv_cache_dtype="int8")
    sequence = Chunk(TOKENS, 0, 40, [4, 7, 1])
    found = all_logits(model, make_batch([sequence]), spec.vocab_size)
    expected = reference_logits(spec, TOKENS)
    error = np.sqrt(((found - expected) ** 2).mean()) / np.sqrt((expected**2).mean())
    assert 1e-5 < error < 10**0.5 * 2**-8


def test_an_unknown_type_of_the_cache_is_refused() -> None:
    kind: Any = "fp8"
    with pytest.raises(KernelInputError, match=r"kv_cache_dtype must be auto, .* or int8, got fp8"):
        make_model(make_spec(), "float32", kv_cache_dtype=kind)


def test_timers_count_the_phases_of_a_step_and_can_be_reset() -> None:
    spec = make_spec()
    model = make_model(spec, "float32")
    all_logits(model, make_batch([Chunk(TOKENS, 0, 9, [0])]), spec.vocab_size)
    timers = model.timers()
    assert set(timers) >= {"embed", "qkv", "attention", "o", "gate_up", "down", "head", "barrier"}
    assert timers["gate_up"] > 0
    model.reset_timers()
    assert set(model.timers().values()) == {0.0}


def test_missing_weights_are_named() -> None:
    spec = make_spec()
    model = CpuModel(spec, dtype="float32", num_threads=1, max_num_batched_tokens=8)
    for tensor in make_weights(spec):
        if tensor.name != "layers.1.up_proj":
            model.set_weight(tensor)
    model.allocate_kv(4, 16)
    with pytest.raises(ModelLoadError, match=r"lacks 1 weights: layers\.1\.up_proj"):
        model.finish_loading()
    with pytest.raises(ModelLoadError, match=r"layers\.1\.up_proj"):
        model.forward(make_batch([Chunk(TOKENS, 0, 4, [0])]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "layers.2.q_proj"}, "layers.2.q_proj is not one of this model's"),
        ({"name": "layers.0.q_proj.bias"}, "is not one of this model's"),
        ({"name": "layers.x.q_proj"}, "is not one of this model's"),
        ({"shape": (48, 80)}, r"must have shape \[80, 48\], got \[48, 80\]"),
        ({"data": np.zeros(80 * 48 * 4 - 1, np.uint8)}, "must hold 15360 bytes, got 15359"),
        ({"tensor_type": TensorType.Q4_0}, "rows of 48 weights, .* multiple of 32"),
        ({"interleaved_heads": 3}, "interleaved_heads = 3 does not divide"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    model = CpuModel(make_spec(), dtype="float32", num_threads=1, max_num_batched_tokens=8)
    fitting = WeightTensor(
        "layers.0.q_proj", TensorType.F32, (80, 48), np.zeros(80 * 48 * 4, np.uint8)
    )
    model.set_weight(fitting)
    with pytest.raises(KernelInputError, match=message):
        model.set_weight(replace(fitting, **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 4, "num_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads"),
        ({"head_dim": 17}, "head_dim must be even"),
        ({"head_dim": 18}, "rope_inv_freq must have head_dim / 2 = 9 values, got 8"),
        ({"hidden_size": 0}, "hidden_size must be at least 1, got 0"),
        ({"sliding_windows": (1,)}, "sliding_windows must have num_layers = 2"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelInputError, match=message):
        CpuModel(
            replace(make_spec(), **change), dtype="float32", num_threads=1, max_num_batched_tokens=8
        )


def test_thread_and_token_counts_below_one_are_refused() -> None:
    spec = make_spec()
    with pytest.raises(KernelInputError, match="num_threads must be at least 1, got 0"):
        CpuModel(spec, dtype="float32", num_threads=0, max_num_batched_tokens=8)
    with pytest.raises(KernelInputError, match="max_num_batched_tokens must be between"):
        CpuModel(spec, dtype="float32", num_threads=1, max_num_batched_tokens=0)


def test_an_instruction_set_that_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAIRLIFT_ISA", "sve2")
    with pytest.raises(ConfigError, match="'sve2' cannot run"):
        CpuModel(make_spec(), dtype="float32", num_threads=1, max_num_batched_tokens=8)


def test_threads_use_no_processor_time_while_no_step_runs() -> None:
    model = make_model(make_spec(), "float32", num_threads=4)
    model.forward(GOOD_BATCH)
    before = time.process_time()
    threading.Event().wait(0.3)
    # Three workers that went on spinning would use at least 0.3 s on any machine.
    assert time.process_time() - before < 0.1


GOOD_BATCH = make_batch([Chunk(TOKENS, 0, 3, [2]), Chunk(TOKENS, 16, 18, [0, 1])])


def _set(array: np.ndarray, index: Any, value: int) -> np.ndarray:
    changed = array.copy()
    changed[index] = value
    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": _set(GOOD_BATCH.token_ids, 1, 97)}, r"token_ids\[1\] .* 96, got 97"),
        ({"token_ids": _set(GOOD_BATCH.token_ids, 0, -1)}, r"token_ids\[0\] .*, got -1"),
        ({"positions": _set(GOOD_BATCH.positions, 3, 5)}, r"positions\[3\] must be 16"),
        ({"slot_mapping": _set(GOOD_BATCH.slot_mapping, 4, 99)}, r"slot_mapping\[4\] must be 17"),
        (
            {"block_tables": _set(GOOD_BATCH.block_tables, (1, 0), 64)},
            r"block_tables of a sequence\[0\]",
        ),
        (
            {"block_tables": _set(GOOD_BATCH.block_tables, (1, 1), -1)},
            r"block_tables of a sequence\[1\]",
        ),
        ({"seq_lens": _set(GOOD_BATCH.seq_lens, 1, 33)}, r"seq_lens\[1\] .* 32, got 33"),
        ({"seq_lens": _set(GOOD_BATCH.seq_lens, 0, 2)}, r"seq_lens\[0\]"),
        ({"query_start_loc": np.array([0, 3, 3], np.int32)}, r"query_start_loc\[2\]"),
        ({"query_start_loc": np.array([1, 3, 5], np.int32)}, r"query_start_loc\[0\]"),
        ({"query_start_loc": np.array([0, 5], np.int32)}, "query_start_loc must have 3 elements"),
        ({"positions": GOOD_BATCH.positions[:4]}, "positions must have 5 elements, got 4"),
        ({"positions": GOOD_BATCH.positions.astype(np.int64)}, "wrong type, dtype"),
        ({"slot_mapping": GOOD_BATCH.slot_mapping.astype(np.int32)}, "wrong type, dtype"),
        ({"block_tables": GOOD_BATCH.block_tables[0]}, "wrong type, dtype"),
        ({"token_ids": np.repeat(GOOD_BATCH.token_ids, 2)[::2]}, "layout"),
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused(
    change: dict[str, Any], message: str
) -> None:
    model = make_model(make_spec(), "float32")
    model.forward(GOOD_BATCH)
    with pytest.raises(KernelInputError, match=message):
        model.forward(replace(GOOD_BATCH, **change))


def test_more_tokens_than_the_model_was_made_for_are_refused() -> None:
    model = make_model(make_spec(), "float32", max_num_batched_tokens=4)
    with pytest.raises(KernelInputError, match=r"max_num_batched_tokens = 4 .* got 5"):
        model.forward(GOOD_BATCH)


def test_an_empty_batch_is_refused() -> None:
    empty = np.zeros(0, np.int32)
    batch = FlatBatch(
        empty, empty, np.zeros(1, np.int32), empty, np.zeros((0, 1), np.int32), empty.astype("i8")
    )
    with pytest.raises(KernelInputError, match="number of tokens"):
        make_model(make_spec(), "float32").forward(batch)


def test_a_step_needs_a_kv_cache() -> None:
    spec = make_spec()
    model = CpuModel(spec, dtype="float32", num_threads=1, max_num_batched_tokens=8)
    for tensor in make_weights(spec):
        model.set_weight(tensor)
    with pytest.raises(KernelInputError, match="call allocate_kv first"):
        model.forward(GOOD_BATCH)


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 16), (4, 0), (-1, 16)])
def test_a_kv_cache_without_room_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(KernelInputError):
        make_model(make_spec(), "float32").allocate_kv(num_blocks, block_size)


def test_rows_outside_of_the_last_batch_and_wrong_outputs_are_refused() -> None:
    model = make_model(make_spec(), "float32")
    out = np.empty((1, 97), np.float32)
    with pytest.raises(KernelInputError, match=r"rows\[0\]"):
        model.compute_logits(np.array([0], np.int32), out)
    model.forward(GOOD_BATCH)
    for row in (-1, 5):
        with pytest.raises(KernelInputError, match=r"rows\[0\] must be between 0 and 4"):
            model.compute_logits(np.array([row], np.int32), out)
    with pytest.raises(KernelInputError, match=r"out \(rows\) must have 2"):
        model.compute_logits(np.array([0, 1], np.int32), out)
    with pytest.raises(KernelInputError, match=r"out \(columns\) must have 97"):
        model.compute_logits(np.array([0], np.int32), np.empty((1, 96), np.float32))
