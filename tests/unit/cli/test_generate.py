"""What ``generate`` asks of the engine, and how it writes what comes out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chairlift.cli.generate import json_line, run_jobs, stream_text, write_json, write_text
from chairlift.cli.prompts import Job
from chairlift.outputs import ChoiceOutput, FinishReason, RequestOutput, TokenLogprob
from chairlift.sampling_params import SamplingParams


def output(
    *texts: str, logprobs: tuple[TokenLogprob, ...] | None = None, **fields: Any
) -> RequestOutput:
    """A whole answer with one choice per text."""
    choices = tuple(
        ChoiceOutput(i, text, (7, 8), logprobs, FinishReason.LENGTH) for i, text in enumerate(texts)
    )
    return RequestOutput("id", (1, 2, 3), choices, True, 5, num_output_tokens=2, **fields)


class FakeLLM:
    """Answers each prompt with itself in capital letters, and notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any]] = []

    def generate(
        self, prompts: Sequence[str], params: Sequence[SamplingParams], *, use_progress: bool
    ) -> list[RequestOutput]:
        self.calls.append((prompts, params))
        return [output(str(prompt).upper()) for prompt in prompts]

    def chat(
        self, messages: Sequence[Any], params: Sequence[SamplingParams], *, use_progress: bool
    ) -> list[RequestOutput]:
        self.calls.append((messages, params))
        return [output(conversation[-1]["content"].upper()) for conversation in messages]

    def stream(self, prompt: str, params: SamplingParams) -> Iterator[RequestOutput]:
        yield from (output(letter) for letter in prompt.upper())

    def stream_chat(self, messages: Any, params: SamplingParams) -> Iterator[RequestOutput]:
        return self.stream(messages[-1]["content"], params)


def chat_job(text: str) -> Job:
    """A job with one message of the user."""
    return Job(messages=[{"role": "user", "content": text}])


def test_all_prompts_run_in_one_batch() -> None:
    llm, params = FakeLLM(), [SamplingParams(max_tokens=n) for n in (1, 2)]
    run_jobs(llm, [Job("a"), Job([1, 2])], params)  # type: ignore[arg-type]
    assert llm.calls == [(["a", [1, 2]], params)]


def test_outputs_of_prompts_and_chats_come_in_the_order_of_the_jobs() -> None:
    jobs = [chat_job("a"), Job("b"), chat_job("c")]
    outputs = run_jobs(FakeLLM(), jobs, [SamplingParams()] * 3)  # type: ignore[arg-type]
    assert [out.choices[0].text for out in outputs] == ["A", "B", "C"]


@pytest.mark.parametrize("job", [Job("abc"), chat_job("abc")])
def test_a_single_text_is_streamed(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    stream_text(FakeLLM(), job, SamplingParams())  # type: ignore[arg-type]
    assert capsys.readouterr().out == "ABC\n"


def test_several_texts_have_headings(capsys: pytest.CaptureFixture[str]) -> None:
    write_text([Job("a\nb"), chat_job("c" * 70)], [output("x"), output("y", "z")])
    title = "c" * 57 + "..."
    assert capsys.readouterr().out == (
        f"==> 1/2: a b <==\nx\n==> 2/2: {title} <==\ny\n==> 2/2: {title} <==\nz\n"
    )


def test_json_output_is_one_line_per_job(capsys: pytest.CaptureFixture[str]) -> None:
    write_json([Job("a", job_id="x"), chat_job("ü")], [output("1\n2"), output("3")])
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["index"] for line in lines] == [0, 1]
    assert "ü" in lines[1]


def test_a_json_line_says_everything_about_the_answer() -> None:
    assert json_line(4, Job("a", job_id="x"), output("b")) == {
        "index": 4,
        "id": "x",
        "prompt": "a",
        "choices": [
            {
                "index": 0,
                "text": "b",
                "finish_reason": "length",
                "stop_reason": None,
                "token_ids": [7, 8],
            }
        ],
        "seed": 5,
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "cached_tokens": 0},
    }


def test_a_chat_is_written_with_its_messages_and_without_a_prompt() -> None:
    line = json_line(0, chat_job("a"), output("b"))
    assert line["messages"] == [{"role": "user", "content": "a"}]
    assert "prompt" not in line


def test_logprobs_are_written_when_asked_for() -> None:
    entry = TokenLogprob(7, -0.5, 1, ((7, -0.5), (9, -1.5)))
    line = json_line(0, Job("a"), output("b", logprobs=(entry,), prompt_logprobs=(None, entry)))
    expected = {"token_id": 7, "logprob": -0.5, "rank": 1, "top": [[7, -0.5], [9, -1.5]]}
    assert line["choices"][0]["logprobs"] == [expected]
    assert line["prompt_logprobs"] == [None, expected]
