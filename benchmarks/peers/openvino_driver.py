"""OpenVINO GenAI's continuous batching on the CPU, for ``peers.py``; runs in its own environment.

The model is a folder made by ``optimum-cli export openvino``. Prefix caching is off, as it is for
Chairlift in this comparison, and the scheduler's limits leave all requests running at once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import openvino
import openvino_genai
from driver import Generate, drive

KV_CACHE_GIB = 4
MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS = 2048, 128


def load() -> tuple[str, Generate]:
    """Start the pipeline on the model folder named on the command line."""
    folder = Path(sys.argv[1])
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = KV_CACHE_GIB
    scheduler.max_num_batched_tokens = MAX_NUM_BATCHED_TOKENS
    scheduler.max_num_seqs = MAX_NUM_SEQS
    scheduler.enable_prefix_caching = False
    pipeline = openvino_genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", {}, {})

    def generate(prompts: list[list[int]], num_output_tokens: int) -> int:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = num_output_tokens
        config.ignore_eos = True
        config.do_sample = False
        inputs = [openvino.Tensor(np.array([ids], dtype=np.int64)) for ids in prompts]
        results = pipeline.generate(inputs, [config] * len(inputs))
        return sum(len(result.m_generation_ids[0]) for result in results)

    return f"openvino-genai {openvino_genai.__version__} {folder.name}", generate


if __name__ == "__main__":
    drive(load)
