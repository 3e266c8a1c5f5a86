"""The tiny models are what transformers and the tokenizers library take them for."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from tests.tiny_models import EOS_TOKEN, SUCCESSORS


def _greedy(folder: Path, prompt: str, num_tokens: int) -> list[int]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([tokenizer(prompt).input_ids])
    with torch.no_grad():
        for _ in range(num_tokens):
            logits = model(ids).logits[0, -1]
            ids = torch.cat([ids, logits.argmax().reshape(1, 1)], dim=1)
    return [int(i) for i in ids[0, -num_tokens:]]


def test_successor_model_continues_the_alphabet(successor_model_path: Path) -> None:
    assert bytes(_greedy(successor_model_path, "it is ABC", 60)) == (
        b"DEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789A"
    )


def test_successor_model_repeats_the_bytes_of_an_emoji(successor_model_path: Path) -> None:
    assert bytes(_greedy(successor_model_path, "\U0001f3bf", 8)).decode() == "\U0001f3bf" * 2


def test_successor_model_ends_after_a_full_stop(successor_model_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(successor_model_path)
    assert _greedy(successor_model_path, "well!", 2) == [
        ord("."),
        tokenizer.convert_tokens_to_ids(EOS_TOKEN),
    ]


def test_every_token_of_the_successor_model_has_a_successor() -> None:
    assert sorted(SUCCESSORS) == list(range(259))


def test_random_model_answers_depend_on_the_first_prompt_token(random_model_path: Path) -> None:
    assert _greedy(random_model_path, "A long way down", 12) != _greedy(
        random_model_path, "B long way down", 12
    )
