"""Which weights are kept as they are in the file, and when that is refused."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.tiny_gguf import NUM_KEPT, NUM_MATRICES
from tests.unit.models.gguf_builder import write_gguf

from chairlift.engine.factory import build_engine_core
from chairlift.engine.options import engine_config
from chairlift.errors import ConfigError
from chairlift.kernels.file_formats import kept_weight_bytes
from chairlift.models.loader import load_model


def test_kept_weights_take_the_size_they_have_in_the_file(
    random_gguf_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = engine_config(str(random_gguf_path), quantization="gguf", num_kv_blocks=8)
    with caplog.at_level(logging.INFO, logger="chairlift.engine.weights"):
        info = build_engine_core(config).info
    assert info.dtype == "gguf and bfloat16"
    # Vocabularies are rounded up to panels of 32 features.
    rows_added = 320 - 300
    expected = kept_weight_bytes(load_model(str(random_gguf_path)).weights)
    assert info.weight_bytes == expected + rows_added * (64 // 32) * (34 + 20)
    assert f"{NUM_KEPT} of {NUM_MATRICES} matrices are kept" in caplog.text


def test_a_model_without_such_weights_is_refused(random_model_path: Path, tmp_path: Path) -> None:
    for model in (random_model_path, write_gguf(tmp_path / "plain.gguf")):
        config = engine_config(str(model), quantization="gguf", num_kv_blocks=8)
        with pytest.raises(ConfigError, match="needs a GGUF file with weights in Q4_0, Q4_1"):
            build_engine_core(config)


def test_kept_weights_are_computed_in_bfloat16_only() -> None:
    with pytest.raises(ConfigError, match="dtype must be bfloat16 with quantization gguf"):
        engine_config(quantization="gguf", dtype="float32")
    with pytest.raises(ConfigError, match="quantization must be one of none, int8, gguf"):
        engine_config(quantization="awq")


def test_any_model_can_be_rounded_to_int8(random_gguf_path: Path, random_model_path: Path) -> None:
    for model in (random_gguf_path, random_model_path):
        sizes = {}
        for quantization in ("int8", "none"):
            config = engine_config(str(model), quantization=quantization, num_kv_blocks=8)
            info = build_engine_core(config).info
            sizes[info.dtype] = info.weight_bytes
        # More than half: rows of less than 64 weights are filled up, and features have scales.
        assert 0.5 * sizes["bfloat16"] < sizes["int8 and bfloat16"] < 0.8 * sizes["bfloat16"]
