"""What ``info`` says about a model and the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tiny_gguf import NUM_KEPT, NUM_MATRICES

from chairlift.cli.info import format_bytes, kv_bytes_per_token, model_facts
from chairlift.cli.main import main
from chairlift.models.loader import load_model


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 29, "2.50 GiB"),
    ],
)
def test_bytes_are_written_with_a_fitting_unit(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_kv_bytes_count_keys_and_values_of_all_layers(random_model_path: Path) -> None:
    spec = load_model(str(random_model_path)).spec
    heads = 2 * spec.num_layers * spec.num_kv_heads
    assert kv_bytes_per_token(spec) == {
        "bfloat16": heads * spec.head_dim * 2,
        "float32": heads * spec.head_dim * 4,
        "int8": heads * (spec.head_dim + 2),
    }


def test_memory_is_given_for_each_arithmetic(random_model_path: Path) -> None:
    facts = model_facts(load_model(str(random_model_path)))
    weights = facts["weights_in_memory_bytes"]
    assert weights == {
        "int8": int(str(facts["parameters"])),
        "bfloat16": 2 * int(str(facts["parameters"])),
        "float32": 4 * int(str(facts["parameters"])),
    }


def test_memory_of_weights_kept_as_in_the_file_is_given_where_there_are_some(
    random_gguf_path: Path,
) -> None:
    facts = model_facts(load_model(str(random_gguf_path)))
    assert (facts["matrices"], facts["kept_as_they_are_in_gguf"]) == (NUM_MATRICES, NUM_KEPT)
    weights = facts["weights_in_memory_bytes"]
    assert isinstance(weights, dict)
    assert weights["gguf"] < weights["bfloat16"]


def test_info_is_text_for_people(
    random_model_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["info", str(random_model_path)])
    shown = capsys.readouterr().out
    assert "architecture" in shown
    assert "instruction set" in shown
    assert "_" not in shown.replace(str(random_model_path), "").replace("avx512_bf16", "")


def test_info_is_json_for_programs(
    random_model_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["info", str(random_model_path), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["model"]["architecture"] == "LlamaForCausalLM"
    assert facts["machine"]["threads"] >= 1
    assert "portable" in facts["machine"]["available"]
