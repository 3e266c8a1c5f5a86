"""Where ``generate`` takes prompts from, and what it refuses."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from chairlift.cli.prompts import InputFormat, Job, PromptSource, read_jobs
from chairlift.errors import ConfigError, InvalidParameterError
from chairlift.sampling_params import SamplingParams


def read(
    *arguments: str,
    file: Path | None = None,
    input_format: InputFormat = InputFormat.AUTO,
    chat: bool = False,
    system: str | None = None,
) -> list[Job]:
    """Call ``read_jobs`` with the defaults of the command line."""
    return read_jobs(arguments, PromptSource(file, input_format, chat, system))


def write(folder: Path, name: str, data: str | bytes) -> Path:
    """Write a file and give its path."""
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def type_into_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Let standard input hold ``data``, as in a pipe."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_each_argument_is_a_prompt() -> None:
    assert read("a b", "c") == [Job("a b"), Job("c")]


def test_each_line_of_a_text_file_is_a_prompt_and_blank_lines_are_none(tmp_path: Path) -> None:
    path = write(tmp_path, "prompts.txt", "one\r\n\n  two \n\u2028three")
    assert read(file=path) == [Job("one"), Job("  two "), Job("\u2028three")]


def test_a_byte_order_mark_is_not_part_of_the_first_prompt(tmp_path: Path) -> None:
    assert read(file=write(tmp_path, "p.txt", b"\xef\xbb\xbfone\n")) == [Job("one")]


def test_whole_input_can_be_one_prompt(tmp_path: Path) -> None:
    path = write(tmp_path, "p.txt", "one\ntwo\n")
    assert read(file=path, input_format=InputFormat.WHOLE) == [Job("one\ntwo\n")]


def test_json_lines_carry_ids_and_sampling_fields(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "p.jsonl",
        '{"prompt": "a", "id": "x", "max_tokens": 3}\n\n{"prompt": [1, 2], "id": 7}\n',
    )
    assert read(file=path) == [
        Job("a", overrides={"max_tokens": 3}, job_id="x"),
        Job([1, 2], job_id=7),
    ]


def test_json_lines_may_be_chats(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}]
    path = write(tmp_path, "p.jsonl", '{"messages": [{"role": "user", "content": "hi"}]}')
    assert read(file=path) == [Job(messages=messages)]


def test_logit_bias_of_a_json_line_gets_integer_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "p.jsonl", '{"prompt": "a", "logit_bias": {"5": 1}}')
    assert read(file=path)[0].overrides == {"logit_bias": {5: 1}}


def test_fields_of_a_job_override_the_common_ones() -> None:
    job = Job("a", overrides={"max_tokens": 3})
    params = job.sampling_params(SamplingParams(max_tokens=9, seed=1))
    assert params == SamplingParams(max_tokens=3, seed=1)


def test_bad_fields_of_a_job_are_refused_when_they_are_applied() -> None:
    with pytest.raises(InvalidParameterError, match="top_p"):
        Job("a", overrides={"top_p": 2}).sampling_params(SamplingParams())


def test_standard_input_is_read_when_nothing_else_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    type_into_stdin(monkeypatch, b"one\ntwo\n")
    assert read() == [Job("one"), Job("two")]


def test_a_dash_as_file_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    type_into_stdin(monkeypatch, b'{"prompt": "a"}\n')
    assert read(file=Path("-"), input_format=InputFormat.JSONL) == [Job("a")]


def test_chat_wraps_prompts_into_messages() -> None:
    assert read("hi", chat=True, system="be brief")[0].messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is not JSON"),
        ("3", "must be an object"),
        ('{"prompt": "a", "max_token": 3}', "unknown field 'max_token'"),
        ("{}", "must have a prompt or messages"),
        ('{"prompt": "a", "messages": []}', "and not both"),
        ('{"prompt": 3}', "prompt must be a text or a list of token ids"),
        ('{"prompt": [1, "a"]}', "prompt must be a text or a list of token ids"),
        ('{"prompt": [true]}', "prompt must be a text or a list of token ids"),
        ('{"messages": "hi"}', "messages must be a list"),
        ('{"prompt": "a", "logit_bias": {"x": 1}}', "keys of logit_bias must be token ids"),
    ],
)
def test_a_bad_json_line_is_named_with_its_fault(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises((ConfigError, InvalidParameterError), match=message):
        read(file=write(tmp_path, "p.jsonl", line))


def test_invalid_utf8_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not UTF-8 at byte 3"):
        read(file=write(tmp_path, "p.txt", b"abc\xff"))


def test_an_input_without_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no prompt"):
        read(file=write(tmp_path, "p.txt", "\n \n"))


def test_arguments_and_a_file_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not both"):
        read("a", file=tmp_path / "p.txt")


def test_a_system_message_needs_a_chat() -> None:
    with pytest.raises(ConfigError, match="add --chat"):
        read("a", system="be brief")


def test_token_ids_cannot_be_a_chat(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not token ids"):
        read(file=write(tmp_path, "p.jsonl", '{"prompt": [1]}'), chat=True)
