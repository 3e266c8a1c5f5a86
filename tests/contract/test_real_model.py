"""Promise 1 on a real model: the reference conversations, alone and under everything at once."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.harness import GREEDY, SEEDED, Job, Setting, alone, play

from chairlift.config import DEFAULT_MODEL
from chairlift.models.pull import locate

CASES = json.loads((Path(__file__).parents[1] / "data" / "smollm2_greedy.json").read_text())[
    "cases"
]


@pytest.mark.e2e
def test_real_answers_do_not_depend_on_conditions() -> None:
    model = locate(DEFAULT_MODEL)
    jobs = [
        Job(f"r{i}", tuple(case["prompt_ids"]), replace(GREEDY if i % 2 else SEEDED, max_tokens=12))
        for i, case in enumerate(CASES[-12:])
    ]
    setting = Setting(model=model, dtype="bfloat16", num_threads=2)
    core = replace(setting, enable_prefix_caching=False, num_kv_blocks=200).build()
    expected = {job.name: alone(core, job) for job in jobs}

    rng = random.Random(0)
    mixed = [replace(job, arrives_at=rng.randrange(12)) for job in jobs]
    rng.shuffle(mixed)
    run = play(
        replace(
            setting, num_threads=1, num_kv_blocks=240, block_size=8, max_num_batched_tokens=96
        ).build(),
        mixed,
    )
    assert run.num_preemptions > 0
    for name, answer in run.answers.items():
        assert answer == expected[name], f"request {name} has another answer"
