"""The default model with its weights as they are in the file: the answers of bfloat16, bitwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.harness import GREEDY, SEEDED, Answer, Job, Setting, play
from tests.e2e.reference import CASES

from chairlift.cli.info import model_facts
from chairlift.config import Quantization
from chairlift.models.loader import load_model

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

JOBS = [
    Job(
        case.name,
        tuple(case.prompt_ids),
        replace(GREEDY if i % 2 else SEEDED, max_tokens=16, prompt_logprobs=1),
    )
    for i, case in enumerate(CASES)
    if len(case.prompt_ids) < 600
]


def answers(model: str, quantization: Quantization) -> dict[str, Answer]:
    """What all jobs at once get, logprobs of prompts and outputs included."""
    setting = Setting(Path(model), "bfloat16", quantization, num_kv_blocks=640, num_threads=2)
    return play(setting.build(), JOBS).answers


def test_answers_are_those_of_bfloat16_bit_for_bit(default_model: str) -> None:
    found, expected = answers(default_model, "gguf"), answers(default_model, "none")
    assert len(expected) > 20
    different = [name for name, answer in found.items() if answer != expected[name]]
    assert different == []


def test_all_matrices_of_the_default_model_are_kept(default_model: str) -> None:
    facts = model_facts(load_model(default_model))
    assert facts["kept_as_they_are_in_gguf"] == facts["matrices"]
    weights = facts["weights_in_memory_bytes"]
    assert isinstance(weights, dict)
    assert weights["gguf"] < int(str(facts["size_on_disk_bytes"]))
