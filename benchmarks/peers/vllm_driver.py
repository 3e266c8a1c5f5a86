"""vLLM on the CPU, for ``peers.py``; runs in its own environment.

The model is a folder in Hugging Face format. Options: ``kv_gib``, ``max_model_len``, and
``prefix_caching``, off if not given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from driver import Generate, drive

KV_CACHE_GIB = 4
MAX_MODEL_LEN, MAX_NUM_SEQS = 2048, 64


def load(model: str, options: Mapping[str, Any]) -> tuple[str, Generate]:
    """Start the engine on a model folder; the environment says how large its cache is."""
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(options.get("kv_gib", KV_CACHE_GIB))
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import vllm

    llm = vllm.LLM(
        model=model,
        dtype="bfloat16",
        max_model_len=options.get("max_model_len", MAX_MODEL_LEN),
        max_num_seqs=MAX_NUM_SEQS,
        enable_prefix_caching=options.get("prefix_caching", False),
    )

    def generate(prompts: list[list[int]], num_output_tokens: int) -> int:
        params = vllm.SamplingParams(temperature=0, max_tokens=num_output_tokens, ignore_eos=True)
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = llm.generate(inputs, params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return f"vllm {vllm.__version__}", generate


if __name__ == "__main__":
    drive(load)
