"""Where ``chairlift generate`` takes its prompts from: arguments, a file, or standard input."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

from chairlift.errors import ConfigError, InvalidParameterError
from chairlift.sampling_params import SamplingParams

Message: TypeAlias = Mapping[str, Any]

_SAMPLING_FIELDS = frozenset(field.name for field in dataclasses.fields(SamplingParams))
_OWN_FIELDS = frozenset({"id", "prompt", "messages"})


class InputFormat(StrEnum):
    """How the text of a file or of standard input is cut into prompts."""

    AUTO = "auto"
    LINES = "lines"
    JSONL = "jsonl"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class PromptSource:
    """Where prompts come from besides the command line, and what they are.

    Attributes:
        file: Read prompts from here; - is standard input.
        input_format: lines: a prompt per line. jsonl: an object per line, with prompt or messages,
            and perhaps id and sampling parameters. whole: all of it is one prompt. auto: jsonl for
            files named so, else lines.
        chat: Put each prompt into the model's chat template.
        system: System message; needs --chat.
    """

    file: Path | None = None
    input_format: InputFormat = InputFormat.AUTO
    chat: bool = False
    system: str | None = None

    @property
    def is_standard_input(self) -> bool:
        """Neither a file nor, if this is asked, an argument."""
        return self.file is None or str(self.file) == "-"

    @property
    def name(self) -> str:
        """What messages call it."""
        return "standard input" if self.is_standard_input else str(self.file)


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to generate: the continuation of a prompt, or the next message of a chat.

    Attributes:
        prompt: Text or token ids to continue; unused in a chat.
        messages: The chat so far; None when it is a plain prompt.
        overrides: Sampling fields of this job alone.
        job_id: What the input calls it; repeated in the output.
    """

    prompt: str | list[int] = ""
    messages: list[Message] | None = None
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    job_id: str | int | None = None

    def sampling_params(self, common: SamplingParams) -> SamplingParams:
        """Apply the job's own fields to the sampling parameters of all jobs.

        Raises:
            InvalidParameterError: A value is of the wrong type or out of its bounds.
        """
        return dataclasses.replace(common, **self.overrides) if self.overrides else common


def read_jobs(arguments: Sequence[str], source: PromptSource) -> list[Job]:
    """Collect the jobs of one call of ``generate``.

    Args:
        arguments: Prompts from the command line. Without any, and without a file in ``source``,
            standard input is read.

    Raises:
        ConfigError: There is no prompt, there are two sources, or a line cannot be understood.
        OSError: The file cannot be read.
    """
    if arguments and source.file is not None:
        raise ConfigError("give prompts as arguments or with --file, not both")
    if source.system is not None and not source.chat:
        raise ConfigError("--system is a message of a chat; add --chat")
    jobs = [Job(text) for text in arguments] or list(_cut(_read(source), source))
    if not jobs:
        raise ConfigError(f"{source.name} holds no prompt")
    return [_chat_job(job, source.system) for job in jobs] if source.chat else jobs


def _read(source: PromptSource) -> str:
    if source.file is not None and not source.is_standard_input:
        data = source.file.read_bytes()
    elif sys.stdin.isatty():
        raise ConfigError("no prompt: give one as an argument, with --file, or on standard input")
    else:
        data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source.name} is not UTF-8 at byte {error.start}") from None


def _resolve(source: PromptSource) -> InputFormat:
    if source.input_format is not InputFormat.AUTO:
        return source.input_format
    is_jsonl = source.file is not None and source.file.suffix.lower() in (".jsonl", ".ndjson")
    return InputFormat.JSONL if is_jsonl else InputFormat.LINES


def _cut(text: str, source: PromptSource) -> Iterable[Job]:
    input_format = _resolve(source)
    if input_format is InputFormat.WHOLE:
        if text.strip():
            yield Job(text)
        return
    # Only "\n" ends a line: str.splitlines would also cut at characters that belong to a prompt.
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        if input_format is InputFormat.LINES:
            yield Job(line)
        else:
            yield _parse_job(line, f"{source.name} line {number}")


def _parse_job(line: str, where: str) -> Job:
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{where} must be an object with a prompt or messages, got {line[:60]}")
    if unknown := sorted(fields.keys() - _OWN_FIELDS - _SAMPLING_FIELDS):
        raise ConfigError(
            f"{where} has the unknown field {unknown[0]!r}; known are "
            f"{', '.join(sorted(_OWN_FIELDS))} and the sampling parameters"
        )
    if ("prompt" in fields) == ("messages" in fields):
        raise ConfigError(f"{where} must have a prompt or messages, and not both")
    overrides = {name: value for name, value in fields.items() if name in _SAMPLING_FIELDS}
    if isinstance(overrides.get("logit_bias"), dict):
        overrides["logit_bias"] = _integer_keys(overrides["logit_bias"], where)
    if "messages" in fields:
        messages = _checked_messages(fields["messages"], where)
        return Job(messages=messages, overrides=overrides, job_id=fields.get("id"))
    prompt = _checked_prompt(fields["prompt"], where)
    return Job(prompt, overrides=overrides, job_id=fields.get("id"))


def _checked_messages(messages: Any, where: str) -> list[Message]:
    if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
        return messages
    raise ConfigError(f"{where}: messages must be a list of objects with role and content")


def _checked_prompt(prompt: Any, where: str) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list) and all(type(token_id) is int for token_id in prompt):
        return prompt
    raise ConfigError(f"{where}: prompt must be a text or a list of token ids")


def _integer_keys(biases: Mapping[str, Any], where: str) -> dict[int, Any]:
    try:
        return {int(token_id): bias for token_id, bias in biases.items()}
    except ValueError:
        raise InvalidParameterError(
            f"{where}: keys of logit_bias must be token ids", param="logit_bias"
        ) from None


def _chat_job(job: Job, system: str | None) -> Job:
    if job.messages is not None:
        return job
    if not isinstance(job.prompt, str):
        raise ConfigError("--chat needs prompts that are texts, not token ids")
    messages: list[Message] = [{"role": "user", "content": job.prompt}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return dataclasses.replace(job, prompt="", messages=messages)
