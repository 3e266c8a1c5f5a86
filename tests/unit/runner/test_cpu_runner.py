"""The runner over a model whose logits are known: batches, logprobs, errors, what it forgets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from tests.fakes import make_request

from chairlift.core.scheduler_output import NewRequest, ScheduledRequest, SchedulerOutput
from chairlift.errors import KernelInputError
from chairlift.inputs import CoreRequest
from chairlift.kernels.cpu_model import FlatBatch
from chairlift.kernels.sampling import ThreadTeam
from chairlift.runner.cpu_runner import MAX_LOGITS_ROWS, CpuRunner
from chairlift.runner.sampler import Sampler

VOCAB = 97
BLOCK_SIZE = 4


def logits_after(token_id: int, position: int) -> npt.NDArray[np.float32]:
    """Logits of the known model: they depend on the last token and its position."""
    logits = np.random.default_rng([token_id, position]).normal(size=VOCAB).astype(np.float32)
    logits[next_token(token_id, position)] = 9.0
    return logits


def next_token(token_id: int, position: int) -> int:
    """The model's greedy choice."""
    return (token_id * 7 + position + 1) % VOCAB


class KnownModel:
    """Gives the logits above, or NaN after the tokens in ``poisoned``."""

    def __init__(self) -> None:
        self.batches: list[FlatBatch] = []
        self.most_rows = 0
        self.poisoned: set[int] = set()
        self.failure: Exception | None = None
        self.copies: list[tuple[str, list[int], list[int]]] = []

    def allocate_swap(self, num_blocks: int, path: str = "") -> None:
        raise AssertionError("not the runner's task")

    def swap_out(self, blocks: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]) -> None:
        self.copies.append(("out", blocks.tolist(), slots.tolist()))

    def swap_in(self, slots: npt.NDArray[np.int32], blocks: npt.NDArray[np.int32]) -> None:
        self.copies.append(("in", slots.tolist(), blocks.tolist()))

    def forward(self, batch: FlatBatch) -> None:
        if self.failure is not None:
            raise self.failure
        self.batches.append(batch)

    def compute_logits(self, rows: npt.NDArray[np.int32], out: npt.NDArray[np.float32]) -> None:
        self.most_rows = max(self.most_rows, len(rows))
        batch = self.batches[-1]
        for i, row in enumerate(rows):
            token_id = int(batch.token_ids[row])
            out[i] = logits_after(token_id, int(batch.positions[row]))
            if token_id in self.poisoned:
                out[i, 0] = np.nan


def _runner(num_slots: int = 8) -> tuple[KnownModel, CpuRunner]:
    model = KnownModel()
    sampler = Sampler(VOCAB, ThreadTeam(1))
    return model, CpuRunner(model, sampler, num_slots=num_slots, block_size=BLOCK_SIZE)


def _request(request_id: str, prompt: list[int], **params: object) -> CoreRequest:
    return make_request(request_id, prompt, temperature=0.0, **params)  # type: ignore[arg-type]


def _plan(
    *rows: ScheduledRequest, new: list[CoreRequest] | None = None, finished: list[str] | None = None
) -> SchedulerOutput:
    return SchedulerOutput(
        step=0,
        scheduled=list(rows),
        new_requests=[NewRequest(request) for request in new or []],
        finished_request_ids=finished or [],
    )


def _whole(request_id: str, num_tokens: int, first_block: int = 0) -> ScheduledRequest:
    blocks = tuple(range(first_block, first_block + -(-(num_tokens + 4) // BLOCK_SIZE)))
    return ScheduledRequest(request_id, 0, num_tokens, blocks, True, True)


def test_each_step_samples_from_the_last_token_and_feeds_it_back() -> None:
    _, runner = _runner()
    first = runner.execute(_plan(_whole("a", 3), new=[_request("a", [5, 6, 7])]))
    token = next_token(7, 2)
    assert first.sampled_token_ids == {"a": (token,)}
    second = runner.execute(_plan(ScheduledRequest("a", 3, 1, (), False, True)))
    assert second.sampled_token_ids == {"a": (next_token(token, 3),)}


def test_a_chunk_that_does_not_reach_the_end_of_the_prompt_yields_nothing() -> None:
    _, runner = _runner()
    row = ScheduledRequest("a", 0, 2, (0,), True, False)
    result = runner.execute(_plan(row, new=[_request("a", [5, 6, 7])]))
    assert result.sampled_token_ids == {}


def test_more_rows_than_the_logits_buffer_holds_are_sampled_in_slices() -> None:
    num_requests = MAX_LOGITS_ROWS + 5
    model, runner = _runner(num_slots=num_requests)
    requests = [_request(f"r{i}", [i % VOCAB]) for i in range(num_requests)]
    rows = [_whole(request.request_id, 1, first_block=2 * i) for i, request in enumerate(requests)]
    result = runner.execute(_plan(*rows, new=requests))
    expected = {f"r{i}": (next_token(i % VOCAB, 0),) for i in range(num_requests)}
    assert result.sampled_token_ids == expected
    assert model.most_rows == MAX_LOGITS_ROWS


def test_logprobs_come_for_those_who_ask_and_name_the_same_float_twice() -> None:
    _, runner = _runner()
    requests = [_request("a", [5]), _request("b", [6], logprobs=2)]
    result = runner.execute(_plan(_whole("a", 1), _whole("b", 1, 2), new=requests))
    assert set(result.logprobs) == {"b"}
    (logprob,) = result.logprobs["b"]
    logits = logits_after(6, 0).astype(np.float64)
    expected = logits[logprob.token_id] - np.log(np.exp(logits).sum())
    assert logprob.token_id == next_token(6, 0)
    assert logprob.logprob == pytest.approx(expected, abs=1e-5)
    assert (logprob.rank, logprob.top[0]) == (1, (logprob.token_id, logprob.logprob))
    assert len(logprob.top) == 2


def _expected_prompt_logprobs(prompt: list[int]) -> list[float]:
    values = []
    for position, target in enumerate(prompt[1:]):
        logits = logits_after(prompt[position], position).astype(np.float64)
        values.append(float(logits[target] - np.log(np.exp(logits).sum())))
    return values


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_prompt_logprobs_cover_all_tokens_but_the_first_whatever_the_chunks(chunk: int) -> None:
    _, runner = _runner()
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    new: list[CoreRequest] | None = [_request("a", prompt, prompt_logprobs=1)]
    reported = []
    for start in range(0, len(prompt), chunk):
        count = min(chunk, len(prompt) - start)
        is_last = start + count == len(prompt)
        blocks = (0, 1, 2) if start == 0 else ()
        row = ScheduledRequest("a", start, count, blocks, start == 0, is_last)
        result = runner.execute(_plan(row, new=new))
        new = None
        reported += result.prompt_logprobs.get("a", ())
    assert [entry.token_id for entry in reported] == prompt[1:]
    expected = _expected_prompt_logprobs(prompt)
    assert [entry.logprob for entry in reported] == pytest.approx(expected, abs=1e-5)


def test_prompt_logprobs_are_not_reported_again_after_a_preemption() -> None:
    _, runner = _runner()
    prompt = [3, 1, 4, 1, 5]
    new = [_request("a", prompt, prompt_logprobs=0)]
    first = runner.execute(_plan(ScheduledRequest("a", 0, 3, (0, 1), True, False), new=new))
    again = runner.execute(_plan(ScheduledRequest("a", 0, 5, (2, 3), True, True)))
    reported = first.prompt_logprobs["a"] + again.prompt_logprobs["a"]
    assert [entry.token_id for entry in reported] == prompt[1:]
    last = runner.execute(_plan(ScheduledRequest("a", 0, 6, (4, 5), True, True)))
    assert last.prompt_logprobs == {}


def test_a_prompt_longer_than_the_logits_buffer_is_scored_in_slices() -> None:
    model, runner = _runner()
    prompt = [i % VOCAB for i in range(2 * MAX_LOGITS_ROWS + 3)]
    request = _request("a", prompt, prompt_logprobs=0, max_tokens=0)
    row = ScheduledRequest("a", 0, len(prompt), tuple(range(40)), True, False)
    result = runner.execute(_plan(row, new=[request]))
    assert [entry.token_id for entry in result.prompt_logprobs["a"]] == prompt[1:]
    assert result.sampled_token_ids == {}
    assert model.most_rows == MAX_LOGITS_ROWS


def test_nan_logits_fail_their_own_request_alone() -> None:
    model, runner = _runner()
    model.poisoned = {6}
    requests = [_request("a", [5]), _request("b", [6])]
    result = runner.execute(_plan(_whole("a", 1), _whole("b", 1, 2), new=requests))
    assert set(result.errors) == {"b"}
    assert "NaN" in result.errors["b"]
    assert result.sampled_token_ids["a"] == (next_token(5, 0),)


def test_nan_in_a_scored_prompt_fails_the_request() -> None:
    model, runner = _runner()
    model.poisoned = {6}
    request = _request("a", [6, 1, 2], prompt_logprobs=0)
    result = runner.execute(_plan(_whole("a", 3), new=[request]))
    assert "NaN" in result.errors["a"]


def test_a_finished_request_makes_room_for_another_in_the_same_step() -> None:
    _, runner = _runner(num_slots=1)
    runner.execute(_plan(_whole("a", 1), new=[_request("a", [5])]))
    result = runner.execute(_plan(_whole("b", 1), new=[_request("b", [6])], finished=["a"]))
    assert result.sampled_token_ids == {"b": (next_token(6, 0),)}


def test_an_empty_plan_only_forgets() -> None:
    model, runner = _runner(num_slots=1)
    runner.execute(_plan(_whole("a", 1), new=[_request("a", [5])]))
    assert runner.execute(_plan(finished=["a"])).sampled_token_ids == {}
    assert len(model.batches) == 1


def test_after_a_failed_step_the_failed_requests_can_be_forgotten() -> None:
    model, runner = _runner(num_slots=1)
    model.failure = KernelInputError("no")
    with pytest.raises(KernelInputError):
        runner.execute(_plan(_whole("a", 1), new=[_request("a", [5])]))
    model.failure = None
    result = runner.execute(
        _plan(_whole("b", 1), new=[_request("b", [6])], finished=["a", "never seen"])
    )
    assert result.sampled_token_ids == {"b": (next_token(6, 0),)}


def test_a_request_that_the_sampler_refuses_leaves_no_slot_taken() -> None:
    _, runner = _runner(num_slots=1)
    refused = make_request("a", [5], temperature=1.0)  # sampled, without a seed
    with pytest.raises(KernelInputError, match="seed"):
        runner.execute(_plan(_whole("a", 1), new=[refused]))
    result = runner.execute(_plan(_whole("b", 1), new=[_request("b", [6])], finished=["a"]))
    assert result.sampled_token_ids == {"b": (next_token(6, 0),)}


def test_a_replayed_request_goes_on_where_it_was() -> None:
    _, runner = _runner()
    request = _request("a", [5, 6])
    plan = SchedulerOutput(
        0, [_whole("a", 4)], new_requests=[NewRequest(request, output_token_ids=(8, 9))]
    )
    assert runner.execute(plan).sampled_token_ids == {"a": (next_token(9, 3),)}


def test_times_are_summed_by_part() -> None:
    _, runner = _runner()
    runner.execute(_plan(_whole("a", 1), new=[_request("a", [5])]))
    times = runner.times
    assert min(times.build_ns, times.forward_ns, times.logits_ns, times.sample_ns) > 0
    times.reset()
    assert times.build_ns + times.forward_ns + times.logits_ns + times.sample_ns == 0
