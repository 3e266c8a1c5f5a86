"""Batches: the same bits in any company, requests that fail alone, inputs that are refused."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from chairlift._native import available_isas
from chairlift.errors import KernelInputError
from chairlift.kernels.sampling import ThreadTeam
from chairlift.runner.sampler import SampledTokens, Sampler
from chairlift.sampling_params import SamplingParams

VOCAB_SIZE = 3001
NUM_REQUESTS = 70


def _mixed_params(slot: int) -> SamplingParams:
    """Return settings that exercise every path, different for each slot."""
    kinds: tuple[dict[str, object], ...] = (
        {"temperature": 0.0},
        {"temperature": 0.0, "logprobs": slot % 7},
        {"seed": slot},
        {"seed": slot, "top_p": 0.9, "logprobs": 3},
        {"seed": slot, "top_k": 200, "temperature": 1.7},
        {"seed": slot, "min_p": 0.02, "top_k": 40, "top_p": 0.8, "logprobs": 0},
        {"seed": slot, "repetition_penalty": 1.2, "frequency_penalty": 0.3, "logprobs": 20},
        {"seed": slot, "min_tokens": 9, "stop_token_ids": (5, 6), "logit_bias": {7: 3.0}},
    )
    return SamplingParams(**kinds[slot % len(kinds)])  # type: ignore[arg-type]


def _requests(num_threads: int) -> Sampler:
    sampler = Sampler(VOCAB_SIZE, ThreadTeam(num_threads))
    for slot in range(NUM_REQUESTS):
        tokens = list(range(slot, slot + 40))
        sampler.add(slot, _mixed_params(slot), tokens, tokens[::3], choice_index=slot % 3)
    return sampler


def _logits() -> np.ndarray:
    generator = np.random.default_rng(8)
    return (generator.standard_normal((NUM_REQUESTS, VOCAB_SIZE)) * 2.5).astype(np.float32)


def _sample(sampler: Sampler, slots: np.ndarray) -> SampledTokens:
    """Sample these requests, each with its own logits and position."""
    return sampler.sample(_logits()[slots], slots, (slots % 11).astype(np.int32))


def _as_bytes(sampled: SampledTokens, row: int) -> tuple[int, bytes, object]:
    report = sampled.token_logprob(row)
    return int(sampled.token_ids[row]), sampled.logprobs[row].tobytes(), report


def _by_slot(sampled: SampledTokens, slots: np.ndarray) -> dict[int, object]:
    return {int(slot): _as_bytes(sampled, row) for row, slot in enumerate(slots)}


ALL_SLOTS = np.arange(NUM_REQUESTS, dtype=np.int32)


class TestSameBits:
    @pytest.fixture(scope="class")
    def expected(self) -> dict[int, object]:
        sampler = _requests(1)
        alone = [np.array([slot], np.int32) for slot in range(NUM_REQUESTS)]
        return {s: r for one in alone for s, r in _by_slot(_sample(sampler, one), one).items()}

    @pytest.mark.parametrize("num_threads", [1, 2, 3])
    def test_in_a_batch_as_alone_on_any_number_of_threads(
        self, num_threads: int, expected: dict[int, object]
    ) -> None:
        sampled = _sample(_requests(num_threads), ALL_SLOTS)
        assert _by_slot(sampled, ALL_SLOTS) == expected

    def test_in_any_order_and_company(self, expected: dict[int, object]) -> None:
        sampler = _requests(2)
        shuffled = np.random.default_rng(1).permutation(ALL_SLOTS)
        for slots in (shuffled, shuffled[:9], ALL_SLOTS[::-1].copy()):
            got = _by_slot(_sample(sampler, slots), slots)
            assert got == {slot: expected[slot] for slot in got}

    def test_again_and_again(self, expected: dict[int, object]) -> None:
        sampler = _requests(1)
        for _ in range(3):
            assert _by_slot(_sample(sampler, ALL_SLOTS), ALL_SLOTS) == expected

    def test_wherever_the_row_lies_in_memory(self, expected: dict[int, object]) -> None:
        sampler = _requests(1)
        padded = np.empty(1 + NUM_REQUESTS * VOCAB_SIZE, np.float32)[1:]
        logits = padded.reshape(NUM_REQUESTS, VOCAB_SIZE)
        logits[:] = _logits()
        sampled = sampler.sample(logits, ALL_SLOTS, (ALL_SLOTS % 11).astype(np.int32))
        assert _by_slot(sampled, ALL_SLOTS) == expected

    @pytest.mark.parametrize("isa", [name for name in available_isas() if name != "portable"])
    def test_on_every_instruction_set_with_fused_multiply_add(
        self, isa: str, expected: dict[int, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CHAIRLIFT_ISA", isa)
        assert _by_slot(_sample(_requests(1), ALL_SLOTS), ALL_SLOTS) == expected


def test_the_logits_are_not_written() -> None:
    logits = _logits()
    before = logits.copy()
    _requests(2).sample(logits, ALL_SLOTS, np.zeros(NUM_REQUESTS, np.int32))
    assert np.array_equal(logits, before)


def test_one_request_can_be_sampled_in_several_rows() -> None:
    sampler = Sampler(VOCAB_SIZE, ThreadTeam(2))
    sampler.add(4, SamplingParams(seed=1), [0])
    row = np.tile(_logits()[:1], (6, 1))
    positions = np.array([0, 1, 2, 0, 1, 2], np.int32)
    tokens = sampler.sample(row, np.full(6, 4, np.int32), positions).token_ids.tolist()
    assert tokens[:3] == tokens[3:]
    assert len(set(tokens)) > 1


def _runs_while_sampling(sampler: Sampler, logits: np.ndarray) -> bool:
    """Tell whether another thread got to run between the start and the end of one call."""
    may_run = threading.Lock()
    may_run.acquire()
    has_run: list[bool] = []

    def run_once() -> None:
        with may_run:
            has_run.append(True)

    other = threading.Thread(target=run_once)
    other.start()
    slots = np.zeros(len(logits), np.int32)
    may_run.release()
    sampler.sample(logits, slots, slots)
    ran = bool(has_run)
    other.join()
    return ran


def test_other_threads_run_while_a_batch_is_sampled() -> None:
    # Few rows, because numpy gives the GIL away for reductions of more than 500 elements; long
    # ones, because the other thread takes a moment to wake up.
    logits = np.zeros((60, 100_000), np.float32)
    sampler = Sampler(100_000, ThreadTeam(1))
    sampler.add(0, SamplingParams(seed=1, top_p=0.5), [0])
    interval = sys.getswitchinterval()
    # So long that this thread loses the GIL only where it gives it away.
    sys.setswitchinterval(100.0)
    try:
        # On a busy machine the other thread may wake up too late, but not every time.
        assert any(_runs_while_sampling(sampler, logits) for _ in range(50))
    finally:
        sys.setswitchinterval(interval)


class TestFailingAlone:
    @pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
    @pytest.mark.parametrize("place", [0, 17, VOCAB_SIZE - 1])
    def test_bad_logits_fail_their_own_row(self, bad: float, place: int) -> None:
        sampler = _requests(2)
        logits = _logits()
        positions = (ALL_SLOTS % 11).astype(np.int32)
        expected = sampler.sample(logits, ALL_SLOTS, positions)
        logits[[3, 8, 69], place] = bad
        sampled = sampler.sample(logits, ALL_SLOTS, positions)
        assert sorted(sampled.errors) == [3, 8, 69]
        assert all("NaN or infinity" in message for message in sampled.errors.values())
        assert sampled.token_ids[[3, 8, 69]].tolist() == [-1, -1, -1]
        assert sampled.token_logprob(3) is None
        others = np.delete(ALL_SLOTS, [3, 8, 69])
        assert np.array_equal(sampled.token_ids[others], expected.token_ids[others])

    def _error(self, logits: list[float], params: SamplingParams, allowed: int | None) -> str:
        sampler = Sampler(len(logits), ThreadTeam(1))
        sampler.add(0, params, [0, 1])
        zero = np.zeros(1, np.int32)
        bits = None if allowed is None else np.array([[allowed]], np.uint32)
        sampled = sampler.sample(np.array([logits], np.float32), zero, zero, bits)
        assert sampled.token_ids.tolist() == [-1]
        return sampled.errors[0]

    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_logits_without_any_candidate(self, temperature: float) -> None:
        params = SamplingParams(seed=1, temperature=temperature)
        assert "no finite number" in self._error([-np.inf, -np.inf], params, None)

    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_masks_that_leave_nothing(self, temperature: float) -> None:
        params = SamplingParams(seed=1, temperature=temperature)
        assert "no token may come next" in self._error([0.0, 1.0], params, 0)
        ends = SamplingParams(seed=1, temperature=temperature, min_tokens=1, stop_token_ids=(1,))
        assert "no token may come next" in self._error([0.0, 1.0], ends, 0b10)

    @pytest.mark.parametrize("penalty", [1e-38, 1e-300])
    def test_a_penalty_that_overflows(self, penalty: float) -> None:
        params = SamplingParams(seed=1, repetition_penalty=penalty)
        assert "repetition_penalty" in self._error([50.0, -np.inf], params, None)


class TestRefusedInput:
    @pytest.fixture
    def sampler(self) -> Sampler:
        sampler = Sampler(10, ThreadTeam(1))
        sampler.add(0, SamplingParams(temperature=0.0), [1])
        return sampler

    @pytest.mark.parametrize(
        ("logits", "slots", "positions", "allowed", "message"),
        [
            (np.zeros((1, 9), np.float32), [0], [0], None, "row of logits must have length 10"),
            (np.zeros((2, 10), np.float32), [0], [0], None, "logits must have length 1, got 2"),
            (np.zeros(10, np.float32), [0], [0], None, r"two dimensions.*float32 \[10\]"),
            (np.zeros((1, 10)), [0], [0], None, r"logits float64 \[1, 10\]"),
            (np.zeros((1, 20), np.float32)[:, ::2], [0], [0], None, "contiguous"),
            (np.zeros((1, 10), np.float32), [0], [0, 1], None, "output_positions must have"),
            (np.zeros((1, 10), np.float32), [0], [-1], None, "not be negative, got -1"),
            (np.zeros((1, 10), np.float32), [1], [0], None, "slot 1 holds no request"),
            (np.zeros((1, 10), np.float32), [-1], [0], None, "slot -1 holds no request"),
            (np.zeros((1, 10), np.float32), [0], [0], (1, 2), "row of allowed_bits must have"),
            (np.zeros((1, 10), np.float32), [0], [0], (2, 1), "allowed_bits must have length 1"),
        ],
    )
    def test_arrays_that_do_not_fit(
        self,
        sampler: Sampler,
        logits: np.ndarray,
        slots: list[int],
        positions: list[int],
        allowed: tuple[int, int] | None,
        message: str,
    ) -> None:
        bits = None if allowed is None else np.zeros(allowed, np.uint32)
        with pytest.raises(KernelInputError, match=message):
            sampler.sample(logits, np.array(slots, np.int32), np.array(positions, np.int32), bits)

    def test_an_empty_batch_is_no_error(self, sampler: Sampler) -> None:
        none = np.empty(0, np.int32)
        assert sampler.sample(np.empty((0, 10), np.float32), none, none).token_ids.shape == (0,)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda s: s.add(0, SamplingParams(temperature=0.0), [1]), "slot 0 is taken"),
            (lambda s: s.add(-1, SamplingParams(temperature=0.0), [1]), "negative, got -1"),
            (lambda s: s.add(1, SamplingParams(), [1]), "needs a seed"),
            (lambda s: s.remove(1), "slot 1 holds no request"),
            (lambda s: s.append(1, 0), "slot 1 holds no request"),
            (lambda s: s.append(0, 10), "token_id holds 10, but the vocabulary has ids 0 to 9"),
            (
                lambda s: s.append_rows(np.zeros(2, np.int32), np.zeros(1, np.int32)),
                "token_ids must have length 2, got 1",
            ),
            (
                lambda s: s.append_rows(np.zeros(1, np.int64), np.zeros(1, np.int32)),
                r"slots int64 \[1\]",
            ),
            (
                lambda s: s.prompt_logprobs(
                    np.zeros((1, 10), np.float32), np.array([10], np.int32), 1
                ),
                "token_ids holds 10",
            ),
            (
                lambda s: s.prompt_logprobs(
                    np.zeros((1, 10), np.float32), np.array([1], np.int32), -1
                ),
                "num_top must not be negative",
            ),
        ],
    )
    def test_calls_that_make_no_sense(
        self, sampler: Sampler, call: Callable[[Sampler], object], message: str
    ) -> None:
        with pytest.raises(KernelInputError, match=message):
            call(sampler)

    @pytest.mark.parametrize(
        "given",
        [
            {"repetition_penalty": 1.1, "prompt": [3, 10]},
            {"presence_penalty": 1.0, "output": [-1]},
            {"logit_bias": {10: 1.0}},
            {"stop_token_ids": (10,), "min_tokens": 1},
        ],
        ids=["prompt", "output", "logit_bias", "stop_token_ids"],
    )
    def test_ids_outside_the_vocabulary(self, sampler: Sampler, given: dict[str, object]) -> None:
        prompt, output = given.pop("prompt", [1]), given.pop("output", [])
        params = SamplingParams(temperature=0.0, **given)  # type: ignore[arg-type]
        with pytest.raises(KernelInputError, match="vocabulary has ids 0 to 9"):
            sampler.add(1, params, prompt, output)  # type: ignore[arg-type]
        sampler.add(1, SamplingParams(temperature=0.0), [1])

    def test_a_vocabulary_of_nothing(self) -> None:
        with pytest.raises(KernelInputError, match="vocab_size must be at least 1, got 0"):
            Sampler(0, ThreadTeam(1))
