"""Hand-worked schedules come out of the scheduler; one-token prompts make them exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import Bench, make_request

from chairlift.config import BatchingMode

EXAMPLES = json.loads((Path(__file__).parents[2] / "data" / "worked_examples.json").read_text())
TIMELINES = {example["name"]: example for example in EXAMPLES["timelines"]}


def run_timeline(example: dict[str, Any], batching: BatchingMode) -> Bench:
    """Run an example's requests through the real scheduler, each with a prompt of one token."""
    bench = Bench(max_num_seqs=example["slots"], num_kv_blocks=4096, batching=batching)
    arrivals = example.get("arrival_after_step", {})
    lengths = example["output_lens"]
    bench.add(*(make_request(n, max_tokens=k) for n, k in lengths.items() if n not in arrivals))
    while bench.scheduler.has_work:
        bench.step()
        for name, after_step in arrivals.items():
            if after_step == len(bench.batches):
                bench.add(make_request(name, max_tokens=lengths[name]))
    return bench


def observed(bench: Bench, slots: int) -> dict[str, Any]:
    """A run's figures, under the names of the examples file."""
    batches = [batch for batch in bench.batches if batch]
    running = [len(batch) for batch in batches]
    runs: list[list[int]] = []
    for count in running:
        if runs and runs[-1][1] == count:
            runs[-1][0] += 1
        else:
            runs.append([1, count])
    names = {name for batch in batches for name in batch}
    steps_of = {n: [i for i, b in enumerate(batches, start=1) if n in b] for n in names}
    return {
        "steps": len(batches),
        "running": running,
        "running_runs": runs,
        "tokens": sum(running),
        "slot_steps": slots * len(batches),
        "utilisation": sum(running) / (slots * len(batches)),
        "active": {name: [steps[0], steps[-1]] for name, steps in steps_of.items()},
        "batches": [sorted(batch) for batch in batches],
        "returned_at": bench.returned_at,
    }


CASES = [
    (name, mode)
    for name, example in TIMELINES.items()
    for mode in ("static", "continuous")
    if mode in example
]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_schedule_equals_the_one_worked_by_hand(name: str, mode: BatchingMode) -> None:
    example = TIMELINES[name]
    seen = observed(run_timeline(example, mode), example["slots"])
    for figure, expected in example[mode].items():
        if figure == "batches_head":
            assert seen["batches"][: len(expected)] == expected
        elif figure == "utilisation":
            assert seen[figure] == pytest.approx(expected, abs=5e-4)
        else:
            assert seen[figure] == expected, figure


def test_all_hand_worked_timelines_are_run() -> None:
    assert len(CASES) == 11


def test_steady_state_keeps_every_slot_busy_where_static_batches_waste_them() -> None:
    expected = EXAMPLES["steady_state"]
    lengths = [2, 3, 5, 4, 6, 40] * 30
    tokens_per_step = {}
    for mode in ("static", "continuous"):
        bench = Bench(max_num_seqs=expected["slots"], num_kv_blocks=4096, batching=mode)
        bench.add(*(make_request(f"{i}", max_tokens=n) for i, n in enumerate(lengths)))
        while bench.scheduler.stats().num_waiting:
            bench.step()
        # The tail, where continuous batching has no queue any more, is not steady state.
        tokens_per_step[mode] = sum(map(len, bench.batches)) / len(bench.batches)
    static = expected["static_tokens_per_step_mean"]
    assert tokens_per_step["static"] == pytest.approx(static, rel=0.05)
    assert tokens_per_step["continuous"] == pytest.approx(expected["continuous_tokens_per_step"])
    ratio = tokens_per_step["continuous"] / tokens_per_step["static"]
    assert ratio == pytest.approx(expected["ratio"], rel=0.05)


def test_new_prompt_gets_the_budget_that_decodes_leave_over() -> None:
    example = EXAMPLES["chunked_prefill"][0]
    num_decodes = example["running_decodes"]
    bench = Bench(
        max_num_seqs=100,
        max_num_batched_tokens=example["max_num_batched_tokens"],
        num_kv_blocks=1024,
    )
    bench.add(*(make_request(f"d{i}", max_tokens=50) for i in range(num_decodes)))
    bench.step()
    bench.add(make_request("new", example["new_prompt"]))
    bench.step()
    bench.step()
    assert len(bench.batches[1]) == num_decodes + 1
    chunks = [batch["new"] for batch in bench.batches[1:3]]
    assert chunks == [example["first_chunk"], example["second_chunk_if_nothing_changes"]]


def test_long_prompt_alone_is_cut_into_whole_budgets() -> None:
    example = EXAMPLES["chunked_prefill"][1]
    budget = example["max_num_batched_tokens"]
    bench = Bench(max_num_batched_tokens=budget, num_kv_blocks=1024)
    bench.add(make_request("long", example["new_prompt"], max_tokens=1))
    bench.run()
    assert [batch["long"] for batch in bench.batches] == example["chunks"]
