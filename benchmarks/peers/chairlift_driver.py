"""Chairlift itself, driven by ``peers.py`` in the same way as the others.

As a peer, it is another version of Chairlift in an environment of its own, to see what a change
brought. Options are those of ``chairlift.LLM``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driver import Generate, drive

import chairlift


def load(model: str, options: Mapping[str, Any]) -> tuple[str, Generate]:
    """Load the model; without prefix caching, unless an option says otherwise."""
    llm = chairlift.LLM(model, **({"enable_prefix_caching": False} | dict(options)))
    vocab_size = llm.limits.vocab_size

    def generate(prompts: list[list[int]], num_output_tokens: int) -> int:
        prompts = [[token_id % vocab_size for token_id in prompt] for prompt in prompts]
        params = chairlift.SamplingParams(
            max_tokens=num_output_tokens, temperature=0.0, ignore_eos=True
        )
        outputs = llm.generate(prompts, params, use_progress=False)
        return sum(len(output.choices[0].token_ids) for output in outputs)

    return f"chairlift {chairlift.__version__}", generate


if __name__ == "__main__":
    drive(load)
