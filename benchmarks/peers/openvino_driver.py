"""OpenVINO GenAI's continuous batching on the CPU, for ``peers.py``; runs in its own environment.

The model is a folder made by ``optimum-cli export openvino``. The scheduler's limits leave all
requests running at once. Options: ``kv_gib``, and ``prefix_caching``, off if not given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import openvino
import openvino_genai
from driver import Generate, drive

KV_CACHE_GIB = 4
MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS = 2048, 128


def load(model: str, options: Mapping[str, Any]) -> tuple[str, Generate]:
    """Start the pipeline on a model folder."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = options.get("kv_gib", KV_CACHE_GIB)
    scheduler.max_num_batched_tokens = MAX_NUM_BATCHED_TOKENS
    scheduler.max_num_seqs = MAX_NUM_SEQS
    scheduler.enable_prefix_caching = options.get("prefix_caching", False)
    pipeline = openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", {}, {})

    def generate(prompts: list[list[int]], num_output_tokens: int) -> int:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = num_output_tokens
        config.ignore_eos = True
        config.do_sample = False
        inputs = [openvino.Tensor(np.array([ids], dtype=np.int64)) for ids in prompts]
        results = pipeline.generate(inputs, [config] * len(inputs))
        return sum(len(result.m_generation_ids[0]) for result in results)

    return f"openvino-genai {openvino_genai.__version__}", generate


if __name__ == "__main__":
    drive(load)
