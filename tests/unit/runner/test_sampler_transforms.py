"""What is done to the logits before a token is chosen: masks, bias, penalties, and their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.unit.runner.sampler_reference import acceptable_tokens, change_logits

from chairlift.kernels.sampling import ThreadTeam
from chairlift.runner.sampler import SampledTokens, Sampler, uniform_draw
from chairlift.sampling_params import SamplingParams


def _sample_next(
    logits: list[float] | NDArray[np.float32],
    params: SamplingParams,
    *,
    prompt: list[int] | None = None,
    output: list[int] | None = None,
    eos_token_ids: tuple[int, ...] = (),
    allowed: set[int] | None = None,
) -> SampledTokens:
    """Sample one token of a request that has this prompt and output."""
    row = np.array([logits], dtype=np.float32)
    sampler = Sampler(row.shape[1], ThreadTeam(1))
    output = output or []
    sampler.add(0, params, prompt or [], output, eos_token_ids=eos_token_ids)
    positions = np.array([len(output)], dtype=np.int32)
    bits = None
    if allowed is not None:
        bits = np.zeros((1, (row.shape[1] + 31) // 32), dtype=np.uint32)
        for token in allowed:
            bits[0, token // 32] |= np.uint32(1 << (token % 32))
    return sampler.sample(row, np.zeros(1, np.int32), positions, bits)


def _greedy(logits: list[float], *, output: list[int] | None = None, **given: object) -> int:
    """Return the greedy token; keywords that are not about the tokens so far are parameters."""
    about_tokens = {
        name: given.pop(name) for name in ("prompt", "eos_token_ids", "allowed") if name in given
    }
    params = SamplingParams(temperature=0.0, **given)  # type: ignore[arg-type]
    sampled = _sample_next(logits, params, output=output, **about_tokens)  # type: ignore[arg-type]
    return int(sampled.token_ids[0])


class TestRepetitionPenalty:
    def test_positive_logits_are_divided(self) -> None:
        assert _greedy([4.0, 2.1], prompt=[0], repetition_penalty=1.9) == 0
        assert _greedy([4.0, 2.1], prompt=[0], repetition_penalty=1.95) == 1

    def test_negative_logits_are_multiplied(self) -> None:
        assert _greedy([-2.0, -3.1], prompt=[0], repetition_penalty=1.5) == 0
        assert _greedy([-2.0, -3.1], prompt=[0], repetition_penalty=1.6) == 1

    def test_it_counts_the_output_too(self) -> None:
        assert _greedy([4.0, 2.1], output=[0], repetition_penalty=2.0) == 1

    def test_it_applies_once_however_often_a_token_came(self) -> None:
        assert _greedy([4.0, 1.9], prompt=[0, 0], output=[0, 0], repetition_penalty=2.0) == 0

    def test_below_one_it_favours_repetition(self) -> None:
        assert _greedy([2.0, 3.0], prompt=[0], repetition_penalty=0.5) == 0


class TestPresenceAndFrequencyPenalties:
    def test_presence_is_subtracted_once(self) -> None:
        assert _greedy([4.0, 3.1], output=[0, 0, 0], presence_penalty=0.8) == 0
        assert _greedy([4.0, 3.1], output=[0, 0, 0], presence_penalty=1.0) == 1

    def test_frequency_is_subtracted_for_each_occurrence(self) -> None:
        assert _greedy([4.0, 3.1], output=[0, 0], frequency_penalty=0.4) == 0
        assert _greedy([4.0, 3.1], output=[0, 0, 0], frequency_penalty=0.4) == 1

    @pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
    def test_the_prompt_does_not_count(self, name: str) -> None:
        assert _greedy([4.0, 3.1], prompt=[0, 0], **{name: 2.0}) == 0

    @pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
    def test_negative_penalties_reward(self, name: str) -> None:
        assert _greedy([4.0, 3.1], output=[1], **{name: -1.0}) == 1

    def test_they_come_after_the_repetition_penalty(self) -> None:
        # (4 / 2) - 1 = 1; the other way round (4 - 1) / 2 = 1.5.
        given = {"output": [0], "presence_penalty": 1.0, "repetition_penalty": 2.0}
        assert _greedy([4.0, 1.2], **given) == 1  # type: ignore[arg-type]
        assert _greedy([4.0, 0.9], **given) == 0  # type: ignore[arg-type]


class TestLogitBias:
    def test_it_is_added(self) -> None:
        assert _greedy([1.0, 2.0, 3.0], logit_bias={0: 2.1}) == 0
        assert _greedy([1.0, 2.0, 3.0], logit_bias={0: 1.9}) == 2
        assert _greedy([1.0, 2.0, 3.0], logit_bias={2: -100, 1: -100}) == 0

    def test_it_comes_before_the_penalties(self) -> None:
        # (1 + 3) / 2 = 2; the other way round 1 / 2 + 3 = 3.5.
        given = {"prompt": [0], "logit_bias": {0: 3.0}, "repetition_penalty": 2.0}
        assert _greedy([1.0, 2.1], **given) == 1
        assert _greedy([1.0, 1.9], **given) == 0


class TestMinTokens:
    @pytest.mark.parametrize(("num_output", "expected"), [(0, 1), (1, 1), (2, 2), (3, 2)])
    def test_an_end_token_comes_only_after_so_many(self, num_output: int, expected: int) -> None:
        token = _greedy([0.0, 1.0, 2.0], output=[0] * num_output, min_tokens=2, eos_token_ids=(2,))
        assert token == expected

    def test_stop_tokens_wait_too(self) -> None:
        given = {"min_tokens": 1, "eos_token_ids": (2,), "stop_token_ids": (1,)}
        assert _greedy([0.0, 1.0, 2.0], **given) == 0
        assert _greedy([0.0, 1.0, 2.0], output=[0], **given) == 2  # type: ignore[arg-type]

    def test_with_ignore_eos_only_stop_tokens_wait(self) -> None:
        given = {"min_tokens": 1, "eos_token_ids": (2,), "stop_token_ids": (1,)}
        assert _greedy([0.0, 1.0, 2.0], ignore_eos=True, **given) == 2

    def test_a_bias_does_not_bring_an_end_token_back(self) -> None:
        given = {"min_tokens": 1, "eos_token_ids": (2,), "logit_bias": {2: 100}}
        assert _greedy([0.0, 1.0, 2.0], **given) == 1

    def test_an_end_token_outside_the_vocabulary_is_passed_over(self) -> None:
        assert _greedy([0.0, 1.0, 2.0], min_tokens=1, eos_token_ids=(3,)) == 2


class TestAllowedTokens:
    def test_only_allowed_tokens_come(self) -> None:
        logits = np.arange(70.0).tolist()
        assert _greedy(logits, allowed={0, 31, 32, 64}) == 64
        assert _greedy(logits, allowed={0, 31}) == 31

    def test_a_bias_does_not_bring_an_excluded_token_back(self) -> None:
        assert _greedy([0.0, 1.0, 2.0], allowed={0, 1}, logit_bias={2: 100}) == 1

    def test_random_draws_stay_inside_and_keep_their_proportions(self) -> None:
        logits = np.random.default_rng(0).standard_normal(100).astype(np.float32)
        allowed = set(range(0, 100, 3))
        masked = np.where(np.isin(np.arange(100), list(allowed)), logits, -np.inf)
        for seed in range(50):
            params = SamplingParams(seed=seed, top_k=20)
            token = int(_sample_next(logits, params, allowed=allowed).token_ids[0])
            assert token in acceptable_tokens(masked, params, [uniform_draw(seed, 0, 0)])[0]


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_transforms_follow_the_reference(data: st.DataObject) -> None:
    vocab_size = data.draw(st.integers(2, 60))
    ids = st.integers(0, vocab_size - 1)
    prompt = data.draw(st.lists(ids, min_size=1, max_size=20))
    output = data.draw(st.lists(ids, max_size=20))
    penalty = st.sampled_from([0.0, 0.37, -0.9, 2.0])
    params = SamplingParams(
        seed=data.draw(st.integers(0, 2**63 - 1)),
        temperature=data.draw(st.sampled_from([0.5, 1.0, 3.0])),
        top_k=data.draw(st.integers(0, vocab_size)),
        repetition_penalty=data.draw(st.sampled_from([1.0, 0.7, 1.3, 4.0])),
        presence_penalty=data.draw(penalty),
        frequency_penalty=data.draw(penalty),
        logit_bias=data.draw(st.dictionaries(ids, st.sampled_from([-3.25, 0.5, 4.0]), max_size=5)),
        min_tokens=data.draw(st.integers(0, 12)),
        stop_token_ids=tuple(data.draw(st.lists(ids, max_size=1))),
    )
    logits = np.random.default_rng(vocab_size).standard_normal(vocab_size).astype(np.float32) * 2
    token = int(_sample_next(logits, params, prompt=prompt, output=output).token_ids[0])
    changed = change_logits(logits, params, prompt, output)
    draw = uniform_draw(params.seed or 0, len(output), 0)
    assert token in acceptable_tokens(changed, params, [draw])[0]


class TestCounting:
    """Tokens counted as they come, and tokens known from the start after a replay."""

    LOGITS = np.array([[4.0, 3.1, 2.0]], dtype=np.float32)
    PARAMS = SamplingParams(temperature=0.0, presence_penalty=1.0)

    def _next(self, sampler: Sampler) -> int:
        zero = np.zeros(1, np.int32)
        return int(sampler.sample(self.LOGITS, zero, zero).token_ids[0])

    def test_appended_tokens_count_like_those_of_a_replay(self) -> None:
        sampler = Sampler(3, ThreadTeam(1))
        sampler.add(0, self.PARAMS, [0])
        assert self._next(sampler) == 0
        sampler.append(0, 0)
        assert self._next(sampler) == 1
        sampler.append(0, 1)
        assert self._next(sampler) == 0

        replayed = Sampler(3, ThreadTeam(1))
        replayed.add(0, self.PARAMS, [0], [0, 1])
        assert self._next(replayed) == 0

    def test_sampling_alone_counts_nothing(self) -> None:
        sampler = Sampler(3, ThreadTeam(1))
        sampler.add(0, self.PARAMS, [0])
        assert [self._next(sampler) for _ in range(3)] == [0, 0, 0]

    def test_rows_are_appended_to_their_own_requests(self) -> None:
        sampler = Sampler(3, ThreadTeam(1))
        for slot in range(3):
            sampler.add(slot, self.PARAMS, [0])
        # Slot 1 had an error in this step.
        sampler.append_rows(np.array([2, 1, 0], np.int32), np.array([0, -1, 1], np.int32))
        slots = np.arange(3, dtype=np.int32)
        sampled = sampler.sample(np.repeat(self.LOGITS, 3, axis=0), slots, np.zeros(3, np.int32))
        assert sampled.token_ids.tolist() == [0, 0, 1]

    def test_a_slot_forgets_with_its_request(self) -> None:
        sampler = Sampler(3, ThreadTeam(1))
        sampler.add(0, self.PARAMS, [0], [0, 0, 0])
        sampler.remove(0)
        sampler.add(0, self.PARAMS, [0])
        assert self._next(sampler) == 0
