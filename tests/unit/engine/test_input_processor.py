"""What the door lets in, what it fills in, and what it says to the rest."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from chairlift.config import EngineLimits
from chairlift.engine.input_processor import AsyncInputProcessor, InputProcessor, fan_out
from chairlift.errors import ContextLengthError, InvalidParameterError
from chairlift.inputs import Account, GenerateRequest
from chairlift.sampling_params import SamplingParams
from chairlift.tokenization.tokenizer import Tokenizer


def _limits(*, max_model_len: int = 32, num_kv_blocks: int = 16) -> EngineLimits:
    return EngineLimits(
        vocab_size=259,
        max_model_len=max_model_len,
        block_size=4,
        num_kv_blocks=num_kv_blocks,
        max_num_waiting=10,
    )


@pytest.fixture
def processor(tokenizer: Tokenizer) -> InputProcessor:
    return InputProcessor(tokenizer, _limits(), clock=lambda: 7.0)


def _params(**values: object) -> SamplingParams:
    return SamplingParams(**values)  # type: ignore[arg-type]


def test_text_becomes_token_ids_and_the_arrival_is_noted(processor: InputProcessor) -> None:
    request = processor.process("r", "AB", _params(max_tokens=3, seed=5), cache_salt="s")
    assert request == GenerateRequest(
        request_id="r",
        prompt_token_ids=(65, 66),
        sampling_params=_params(max_tokens=3, seed=5),
        arrival_time_s=7.0,
        cache_salt="s",
    )


def test_token_ids_are_taken_as_they_are(processor: InputProcessor) -> None:
    assert processor.process("r", [258, 0], _params()).prompt_token_ids == (258, 0)


def test_numpy_integers_become_plain_ones(processor: InputProcessor) -> None:
    ids = processor.process("r", np.array([1, 2], np.int64), _params()).prompt_token_ids  # type: ignore[arg-type]
    assert (ids, {type(i) for i in ids}) == ((1, 2), {int})


def test_open_max_tokens_becomes_what_fits(processor: InputProcessor) -> None:
    request = processor.process("r", [1] * 20, _params(max_tokens=None))
    assert request.sampling_params.max_tokens == 12


def test_open_max_tokens_is_bounded_by_the_kv_pool_too(tokenizer: Tokenizer) -> None:
    processor = InputProcessor(tokenizer, _limits(num_kv_blocks=2))
    # Eight slots: the last output token needs none, so nine tokens in all.
    assert processor.process("r", [1], _params(max_tokens=None)).sampling_params.max_tokens == 8


def test_an_open_seed_is_drawn_afresh_for_each_request(processor: InputProcessor) -> None:
    seeds = {processor.process("r", "A", _params()).sampling_params.seed for _ in range(8)}
    assert len(seeds) == 8
    assert all(seed is not None and 0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_refused(processor: InputProcessor, prompt: str | list[int]) -> None:
    with pytest.raises(InvalidParameterError, match="prompt must hold at least one token") as info:
        processor.process("r", prompt, _params())
    assert info.value.param == "prompt"


@pytest.mark.parametrize("bad", [-1, 259, 99999999, 2**80])
def test_an_id_outside_the_vocabulary_is_refused_by_name(
    processor: InputProcessor, bad: int
) -> None:
    with pytest.raises(InvalidParameterError, match=f"token id {bad}, .* ids 0 to 258"):
        processor.process("r", [1, bad], _params())


@pytest.mark.parametrize("bad", [True, 1.0, "1", None])
def test_what_is_no_integer_is_no_token_id(processor: InputProcessor, bad: object) -> None:
    with pytest.raises(InvalidParameterError, match="token ids, which are integers"):
        processor.process("r", [1, bad], _params())  # type: ignore[list-item]


def test_parameters_are_checked_against_the_vocabulary(processor: InputProcessor) -> None:
    with pytest.raises(InvalidParameterError, match="stop_token_ids holds token id 9999999"):
        processor.process("r", "A", _params(stop_token_ids=(9999999,)))


def test_a_lone_surrogate_is_refused_with_its_place(processor: InputProcessor) -> None:
    with pytest.raises(InvalidParameterError, match=r"U\+D83D at character 6") as info:
        processor.process("r", "emoji \ud83d", _params(), param="messages")
    assert info.value.param == "messages"


def test_prompt_and_output_over_the_context_are_refused_with_all_numbers(
    processor: InputProcessor,
) -> None:
    with pytest.raises(ContextLengthError) as info:
        processor.process("r", [1] * 30, _params(max_tokens=3))
    message = str(info.value)
    for part in ("30 tokens of prompt", "max_tokens 3", "33", "max_model_len is 32", "64 tokens"):
        assert part in message
    assert "lower max_tokens to 2" in message
    assert (info.value.param, info.value.code) == ("max_tokens", "context_length_exceeded")


def test_a_request_that_fills_the_context_exactly_is_taken(processor: InputProcessor) -> None:
    assert processor.process("r", [1] * 30, _params(max_tokens=2)) is not None


def test_a_prompt_that_leaves_no_room_is_refused(processor: InputProcessor) -> None:
    with pytest.raises(ContextLengthError, match="shorten the prompt") as info:
        processor.process("r", [1] * 32, _params(max_tokens=None))
    assert info.value.param == "prompt"


def test_a_prompt_longer_than_everything_is_refused_before_its_ids_are_looked_at(
    processor: InputProcessor,
) -> None:
    with pytest.raises(ContextLengthError, match="33 tokens of prompt"):
        processor.process("r", [-1] * 33, _params())


def test_a_request_larger_than_the_pool_is_told_of_the_pool(tokenizer: Tokenizer) -> None:
    processor = InputProcessor(tokenizer, _limits(num_kv_blocks=2))
    with pytest.raises(ContextLengthError, match=r"pool holds 8 tokens.*num_kv_blocks"):
        processor.process("r", [1] * 6, _params(max_tokens=4))
    assert processor.process("r", [1] * 6, _params(max_tokens=3)) is not None


def test_scoring_a_prompt_needs_a_slot_for_its_last_token(tokenizer: Tokenizer) -> None:
    processor = InputProcessor(tokenizer, _limits(num_kv_blocks=2))
    scored = _params(max_tokens=0, prompt_logprobs=0)
    assert processor.process("r", [1] * 8, scored).sampling_params.max_tokens == 0
    with pytest.raises(ContextLengthError):
        processor.process("r", [1] * 9, scored)


def test_min_tokens_over_what_fits_are_refused(processor: InputProcessor) -> None:
    with pytest.raises(InvalidParameterError, match="min_tokens must be at most 12"):
        processor.process("r", [1] * 20, _params(max_tokens=None, min_tokens=13))


def test_an_absurdly_long_text_is_refused_without_tokenising_it(tokenizer: Tokenizer) -> None:
    class NeverEncodes:
        max_token_bytes = tokenizer.max_token_bytes

    processor = InputProcessor(NeverEncodes(), _limits())  # type: ignore[arg-type]
    too_long = "a" * (32 * tokenizer.max_token_bytes + 1)
    with pytest.raises(ContextLengthError, match=f"prompt has {len(too_long)} bytes"):
        processor.process("r", too_long, _params())


async def test_the_asynchronous_door_gives_the_same(processor: InputProcessor) -> None:
    door = AsyncInputProcessor(processor)
    params = _params(seed=1)
    assert await door.process("r", "AB", params) == processor.process("r", "AB", params)
    assert await door.tokenize("AB") == [65, 66]


async def test_a_long_text_is_tokenised_in_another_thread(tokenizer: Tokenizer) -> None:
    threads = set()

    class Recording:
        max_token_bytes = tokenizer.max_token_bytes

        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            threads.add(threading.current_thread())
            return [1]

    door = AsyncInputProcessor(
        InputProcessor(Recording(), _limits(max_model_len=100_000, num_kv_blocks=25_000))  # type: ignore[arg-type]
    )
    await door.tokenize("a" * 10)
    assert threads == {threading.current_thread()}
    threads.clear()
    await door.tokenize("a" * 10_000)
    assert threading.current_thread() not in threads


def _request(**params: object) -> GenerateRequest:
    return GenerateRequest("r", (1, 2), _params(seed=3, **params), arrival_time_s=4.0)


def test_one_choice_keeps_the_request_s_id() -> None:
    (only,) = fan_out(_request(), "r", (258,))
    assert (only.request_id, only.choice_index, only.eos_token_ids) == ("r", 0, (258,))


def test_choices_are_numbered_and_share_all_but_their_index() -> None:
    choices = fan_out(_request(n=3), "r", ())
    assert [c.request_id for c in choices] == ["r/0", "r/1", "r/2"]
    assert [c.choice_index for c in choices] == [0, 1, 2]
    assert {c.arrival_time_s for c in choices} == {4.0}


def test_only_the_first_choice_scores_the_prompt() -> None:
    choices = fan_out(_request(n=2, prompt_logprobs=1), "r", ())
    assert [c.sampling_params.prompt_logprobs for c in choices] == [1, None]


def test_every_choice_runs_on_the_account_of_its_request(processor: InputProcessor) -> None:
    account = Account(tenant="team", priority=-3)
    request = processor.process("r", "AB", _params(n=2, seed=1), account=account)
    choices = fan_out(request, "r", ())
    assert [(choice.tenant, choice.priority) for choice in choices] == [("team", -3)] * 2


@pytest.mark.parametrize("priority", [-1001, 1001])
def test_a_priority_out_of_bounds_is_refused(priority: int) -> None:
    with pytest.raises(InvalidParameterError, match="priority must be between -1000 and 1000"):
        Account(priority=priority)
