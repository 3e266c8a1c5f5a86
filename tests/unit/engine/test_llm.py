"""The plain object, over tiny models that are really computed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chairlift
from chairlift.engine.llm import LLM
from chairlift.errors import (
    ConfigError,
    ContextLengthError,
    EngineDeadError,
    InvalidParameterError,
    RequestFailedError,
)
from chairlift.outputs import FinishReason
from chairlift.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_tokens=5)


@pytest.fixture(scope="module")
def llm(successor_model_path: Path) -> Iterator[LLM]:
    with LLM(str(successor_model_path), num_kv_blocks=256, num_threads=1, max_num_seqs=8) as made:
        yield made


def _texts(outputs: list[Any]) -> list[str]:
    return [output.choices[0].text for output in outputs]


def test_one_prompt_gives_one_answer(llm: LLM) -> None:
    (output,) = llm.generate("ABC", GREEDY)
    assert (output.choices[0].text, output.finished) == ("DEFGH", True)
    assert output.prompt_token_ids == tuple(b"ABC")
    assert output.choices[0].finish_reason is FinishReason.LENGTH
    assert output.timings is not None
    assert output.timings.queued_s <= output.timings.first_token_s <= output.timings.last_token_s


def test_answers_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = ["ABC", "xyz", "M"] * 10  # more than run at once
    assert _texts(llm.generate(prompts, GREEDY)) == ["DEFGH", "01234", "NOPQR"] * 10


@pytest.mark.parametrize(
    "prompts", [list(b"ABC"), [list(b"ABC")], (65, 66, 67), np.array([65, 66, 67])]
)
def test_prompts_may_be_token_ids(llm: LLM, prompts: Any) -> None:
    assert _texts(llm.generate(prompts, GREEDY)) == ["DEFGH"]


def test_each_prompt_may_have_its_own_parameters(llm: LLM) -> None:
    params = [SamplingParams(temperature=0.0, max_tokens=n) for n in (1, 3)]
    assert _texts(llm.generate(["A", "A"], params)) == ["B", "BCD"]
    with pytest.raises(InvalidParameterError, match="got 2 for 1 prompts"):
        llm.generate(["A"], params)


def test_stop_strings_end_answers(llm: LLM) -> None:
    (output,) = llm.generate("ABC", SamplingParams(temperature=0.0, max_tokens=50, stop="GH"))
    assert output.choices[0].text == "DEF"
    assert output.choices[0].stop_reason == "GH"


def test_eos_ends_answers(llm: LLM) -> None:
    (output,) = llm.generate("!", SamplingParams(temperature=0.0, max_tokens=50))
    choice = output.choices[0]
    assert (choice.text, choice.finish_reason) == (".", FinishReason.STOP)
    assert len(choice.token_ids) == 2


def test_a_prompt_can_be_scored_without_generating(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=0, prompt_logprobs=1)
    (output,) = llm.generate("ABD", params)
    assert output.choices[0].token_ids == ()
    assert output.prompt_logprobs is not None
    first, second, third = output.prompt_logprobs
    assert first is None
    assert second is not None and second.rank == 1
    assert third is not None and third.rank > 1 and third.top[0][0] == ord("C")


def test_several_choices_of_one_prompt(llm: LLM) -> None:
    (output,) = llm.generate("ABC", SamplingParams(n=3, max_tokens=4, temperature=0.0))
    assert [choice.index for choice in output.choices] == [0, 1, 2]
    assert {choice.text for choice in output.choices} == {"DEFG"}
    assert output.num_output_tokens == 12


def test_a_conversation_is_written_with_the_model_s_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "hi"}]
    for conversations in (messages, [messages]):
        (output,) = llm.chat(conversations, GREEDY)
        text = llm.tokenizer.decode(output.prompt_token_ids, skip_special_tokens=False)
        assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        assert output.choices[0].text == "ABCDE"


def test_a_stream_gives_pieces_that_join_to_the_whole(llm: LLM) -> None:
    pieces = list(llm.stream("ABC", GREEDY))
    assert [piece.choices[0].text for piece in pieces] == list("DEFGH")
    assert [piece.finished for piece in pieces] == [False] * 4 + [True]


def test_a_chat_can_be_streamed(llm: LLM) -> None:
    pieces = llm.stream_chat([{"role": "user", "content": "hi"}], GREEDY)
    assert "".join(piece.choices[0].text for piece in pieces) == "ABCDE"


def test_a_batch_can_run_while_a_stream_is_open(llm: LLM) -> None:
    stream = llm.stream("ABC", GREEDY)
    first = next(stream).choices[0].text
    assert _texts(llm.generate(["x"], GREEDY)) == ["yz012"]
    assert first + "".join(piece.choices[0].text for piece in stream) == "DEFGH"


def test_a_stream_that_is_closed_leaves_nothing_behind(llm: LLM) -> None:
    stream = llm.stream("ABC", SamplingParams(temperature=0.0, max_tokens=500))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    llm.generate("A", GREEDY)
    assert (llm.stats().num_running, llm.stats().num_waiting) == (0, 0)


@pytest.mark.parametrize("prompts", ["", [], [[]], [""], ["A", ""]])
def test_empty_prompts_are_refused(llm: LLM, prompts: Any) -> None:
    with pytest.raises(InvalidParameterError):
        llm.generate(prompts, GREEDY)


def test_nothing_runs_if_one_prompt_is_refused(llm: LLM) -> None:
    before = llm.stats().prompt_tokens_total
    with pytest.raises(ContextLengthError):
        llm.generate(["A", [1] * 9000], GREEDY)
    llm.generate("A", GREEDY)
    assert llm.stats().prompt_tokens_total == before + 1


def test_an_interrupt_leaves_the_engine_usable(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    core = llm._live().core
    step, num_steps = core.step, 0

    def interrupted_step() -> Any:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step()

    monkeypatch.setattr(core, "step", interrupted_step)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["ABC"] * 20, SamplingParams(temperature=0.0, max_tokens=100))
    monkeypatch.undo()
    assert num_steps == 3
    assert _texts(llm.generate("ABC", GREEDY)) == ["DEFGH"]
    assert (llm.stats().num_running, llm.stats().num_waiting) == (0, 0)


def test_a_failed_request_is_reported_after_the_others_have_run(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = llm._live().core._runner
    execute = runner.execute

    def failing(plan: Any) -> Any:
        result = execute(plan)
        result.errors.update({r.request_id: "NaN" for r in plan.scheduled[:1] if plan.new_requests})
        return result

    monkeypatch.setattr(runner, "execute", failing)
    with pytest.raises(RequestFailedError, match=r"1 of 2 failed: .*NaN"):
        llm.generate(["A", "B"], GREEDY)
    monkeypatch.undo()
    assert _texts(llm.generate("A", GREEDY)) == ["BCDEF"]


def test_progress_is_shown_on_standard_error(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate(["A", "B"], GREEDY, use_progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2/2" in captured.err


@pytest.mark.parametrize("batching", ["static", "dynamic"])
def test_other_batching_modes_give_the_same_answers(
    successor_model_path: Path, batching: str
) -> None:
    options: dict[str, Any] = {"batching": batching, "batch_window_s": 0.01, "num_kv_blocks": 64}
    with LLM(str(successor_model_path), num_threads=1, **options) as llm:
        assert _texts(llm.generate(["ABC", "xyz"], GREEDY)) == ["DEFGH", "01234"]


def test_a_pool_too_small_for_all_preempts_and_gives_the_same(random_model_path: Path) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=40, seed=3, ignore_eos=True)
    prompts = [f"prompt number {i}" for i in range(6)]
    answers = []
    for num_kv_blocks in (256, 12):
        with LLM(
            str(random_model_path), num_kv_blocks=num_kv_blocks, num_threads=1, block_size=8
        ) as llm:
            answers.append([o.choices[0].token_ids for o in llm.generate(prompts, params)])
            num_preemptions = llm.stats().num_preemptions_total
    assert num_preemptions > 0
    assert answers[0] == answers[1]


def test_step_times_say_where_the_time_went(llm: LLM) -> None:
    before = llm.stats().step_times
    llm.generate("ABC", GREEDY)
    times = llm.stats().step_times.since(before)
    assert times.num_steps == 5
    assert min(times.schedule_s, times.build_s, times.forward_s, times.sample_s) > 0.0


def test_phases_of_the_start_are_told(successor_model_path: Path) -> None:
    phases: list[str] = []
    with LLM(
        str(successor_model_path),
        num_kv_blocks=8,
        on_phase=lambda name, seconds: phases.append(name),
    ) as llm:
        assert phases == ["open model", "tokenizer", "weights", "kv pool", "warm-up"]
        assert [name for name, _ in llm.info.phases] == phases


def test_a_closed_engine_says_so(successor_model_path: Path) -> None:
    llm = LLM(str(successor_model_path), num_kv_blocks=8)
    llm.close()
    with pytest.raises(EngineDeadError, match="closed"):
        llm.generate("A", GREEDY)


def test_a_context_longer_than_the_model_s_is_refused(successor_model_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_model_len must be at most 8192"):
        LLM(str(successor_model_path), max_model_len=9000)


def test_the_package_exports_what_users_need() -> None:
    assert chairlift.LLM is LLM
    assert chairlift.__version__
    assert dir(chairlift) == sorted(chairlift.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = chairlift.nothing
