"""Chairlift itself, driven by ``peers.py`` in the same way as the others.

As a peer, it is another version of Chairlift in an environment of its own, to see what a change
brought.
"""

from __future__ import annotations

import sys

from driver import Generate, drive

import chairlift


def load() -> tuple[str, Generate]:
    """Load the model named on the command line, in the arithmetic named after it."""
    model, dtype = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "bfloat16"
    llm = chairlift.LLM(model, dtype=dtype, enable_prefix_caching=False)
    vocab_size = llm.limits.vocab_size

    def generate(prompts: list[list[int]], num_output_tokens: int) -> int:
        prompts = [[token_id % vocab_size for token_id in prompt] for prompt in prompts]
        params = chairlift.SamplingParams(
            max_tokens=num_output_tokens, temperature=0.0, ignore_eos=True
        )
        outputs = llm.generate(prompts, params, use_progress=False)
        return sum(len(output.choices[0].token_ids) for output in outputs)

    return f"chairlift {chairlift.__version__} {dtype}", generate


if __name__ == "__main__":
    drive(load)
