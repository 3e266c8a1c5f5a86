"""What transformers makes of the default model's weights, for tests to compare with.

``tests/data/smollm2_greedy.json`` holds what transformers' LlamaForCausalLM computes in float32
from the dequantised weights of the same file: 64 greedy tokens past any end of sequence, for 20
chats and 9 plain prompts, of 1 to 1701 tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).parent.parent / "data" / "smollm2_greedy.json"
NUM_TOKENS = 64
END_OF_SEQUENCE = "<|im_end|>"
# Where the reference's two best tokens are closer than this, in logprob, either may come first.
TIE = 0.01


@dataclass(frozen=True)
class Case:
    """One prompt and what the reference makes of it.

    Attributes:
        messages: The chat; empty for a plain ``prompt``.
        gaps: How much likelier than its runner-up each output token is, in logprob.
    """

    name: str
    messages: tuple[dict[str, str], ...]
    prompt: str
    prompt_ids: list[int]
    output_ids: list[int]
    logprobs: list[float]
    gaps: list[float]
    text: str
    prompt_logprob_sum: float

    @property
    def text_to_the_end(self) -> str:
        """The text up to the end of sequence, for a chat that reaches it."""
        return self.text.partition(END_OF_SEQUENCE)[0]

    @property
    def num_certain(self) -> int:
        """Output tokens before the first that is nearly tied: these must be the same."""
        return next((i for i, gap in enumerate(self.gaps) if gap < TIE), NUM_TOKENS)


def _case(number: int, record: dict[str, Any]) -> Case:
    best, second = record["logprobs"], record["runner_up_logprobs"]
    return Case(
        name=f"{record['kind']} {number}",
        messages=tuple(record.get("messages", ())),
        prompt=record.get("prompt", ""),
        prompt_ids=record["prompt_ids"],
        output_ids=record["output_ids"],
        logprobs=best,
        gaps=[a - b for a, b in zip(best, second, strict=True)],
        text=record["text"],
        prompt_logprob_sum=record["prompt_logprob_sum"],
    )


CASES = [_case(i, record) for i, record in enumerate(json.loads(REFERENCE.read_text())["cases"])]
