"""Timelines are the schedules worked out by hand, with everybody in a slot of their own."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chairlift.config import BatchingMode
from chairlift.errors import ConfigError
from chairlift.simulate.timeline import MODES, Timeline, TimelineSpec, request_names, run_timeline
from chairlift.simulate.timeline_json import timelines_as_dict

EXAMPLES = json.loads((Path(__file__).parents[2] / "data" / "worked_examples.json").read_text())
TIMELINES = {example["name"]: example for example in EXAMPLES["timelines"]}
CASES = [
    (name, mode)
    for name, example in TIMELINES.items()
    for mode in ("static", "continuous")
    if mode in example
]


def spec_of(example: dict[str, Any]) -> TimelineSpec:
    arrivals = example.get("arrival_after_step", {})
    lengths = example["output_lens"]
    return TimelineSpec(
        tuple(lengths.values()), tuple(arrivals.get(name, 0) for name in lengths), example["slots"]
    )


def figures(timeline: Timeline) -> dict[str, Any]:
    """A timeline's figures under the names of the examples file."""
    stays = timeline.stays
    steps = range(1, timeline.num_steps + 1)
    batches = [[s.name for s in stays if s.first_step <= n <= s.last_step] for n in steps]
    runs: list[list[int]] = []
    for count in timeline.running:
        if runs and runs[-1][1] == count:
            runs[-1][0] += 1
        else:
            runs.append([1, count])
    return {
        "steps": timeline.num_steps,
        "running": list(timeline.running),
        "running_runs": runs,
        "tokens": timeline.num_tokens,
        "slot_steps": timeline.num_slot_steps,
        "utilisation": timeline.utilisation,
        "active": {s.name: [s.first_step, s.last_step] for s in stays},
        "batches": batches,
        "returned_at": {s.name: s.returned_at for s in stays},
    }


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_timeline_equals_the_one_worked_by_hand(name: str, mode: BatchingMode) -> None:
    example = TIMELINES[name]
    seen = figures(run_timeline(spec_of(example), mode))
    for figure, expected in example[mode].items():
        if figure == "batches_head":
            assert seen["batches"][: len(expected)] == expected
        elif figure == "utilisation":
            assert seen[figure] == pytest.approx(expected, abs=5e-4)
        else:
            assert seen[figure] == expected, figure


@pytest.mark.parametrize("mode", MODES)
def test_a_slot_holds_one_request_at_a_time(mode: BatchingMode) -> None:
    lengths = tuple(1 + 7 * i % 11 for i in range(40))
    arrivals = tuple(i * i % 30 for i in range(40))
    timeline = run_timeline(TimelineSpec(lengths, arrivals, 5), mode)
    for slot in range(5):
        stays = sorted(
            (s for s in timeline.stays if s.slot == slot), key=lambda stay: stay.first_step
        )
        assert all(first.returned_at < then.first_step for first, then in pairwise(stays))
    for stay in timeline.stays:
        assert stay.last_step - stay.first_step + 1 == stay.num_tokens
        assert stay.first_step > stay.arrival_step


def test_static_batching_hands_tokens_out_with_the_whole_batch() -> None:
    timeline = run_timeline(TimelineSpec((2, 5, 1), (0, 0, 0), 2), "static")
    assert [stay.returned_at for stay in timeline.stays] == [5, 5, 6]


def test_dynamic_batching_waits_its_window_for_company() -> None:
    timeline = run_timeline(TimelineSpec((2, 2), (0, 1), 3, window_steps=2), "dynamic")
    assert timeline.running == (0, 0, 2, 2)
    full = run_timeline(TimelineSpec((2, 2), (0, 1), 2, window_steps=2), "dynamic")
    assert full.running == (0, 2, 2)


def test_steps_in_which_nobody_is_there_count_as_unused() -> None:
    timeline = run_timeline(TimelineSpec((1, 1), (0, 3), 1), "continuous")
    assert timeline.running == (1, 0, 0, 1)
    assert timeline.utilisation == 0.5
    assert timeline.mean_return_step == 1.0


def test_requests_arrive_in_the_order_of_their_steps() -> None:
    timeline = run_timeline(TimelineSpec((1, 1, 1), (2, 1, 0), 1), "continuous")
    assert [stay.first_step for stay in timeline.stays] == [3, 2, 1]


def test_names_go_on_after_z() -> None:
    assert request_names(28)[24:] == ["Y", "Z", "A2", "B2"]


def test_json_holds_every_figure() -> None:
    spec = TimelineSpec((1, 2), (0, 0), 1)
    data = timelines_as_dict(spec, [run_timeline(spec, "static")])
    assert json.loads(json.dumps(data)) == {
        "max_num_seqs": 1,
        "window_steps": 2,
        "lengths": [1, 2],
        "arrivals": [0, 0],
        "modes": {
            "static": {
                "steps": 3,
                "running": [1, 1, 1],
                "tokens": 3,
                "slot_steps": 3,
                "utilisation": 1.0,
                "mean_return_step": 2.0,
                "requests": {
                    "A": {
                        "arrival_step": 0,
                        "tokens": 1,
                        "slot": 0,
                        "first_step": 1,
                        "last_step": 1,
                        "returned_at": 1,
                    },
                    "B": {
                        "arrival_step": 0,
                        "tokens": 2,
                        "slot": 0,
                        "first_step": 2,
                        "last_step": 3,
                        "returned_at": 3,
                    },
                },
            }
        },
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (((), (), 3), "lengths must be numbers of at least 1, got none"),
        (((1, 0), (0, 0), 3), "lengths must be numbers of at least 1, got 1,0"),
        (((1, 2), (0,), 3), "one step of at least 0 for each of the 2 lengths, got 0"),
        (((1,), (-1,), 3), "got -1"),
        (((1,), (0,), 0), "max_num_seqs must be at least 1, got 0"),
        (((1,), (0,), 1, -1), "window must be at least 0 steps, got -1"),
        (((1_000_001,), (0,), 1), "at most 1000000 tokens and steps, got 1000001"),
    ],
)
def test_impossible_timelines_are_refused(fields: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TimelineSpec(*fields)
