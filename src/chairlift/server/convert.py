"""From a body as it came to a validated schema, prompts and sampling parameters."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import ValidationError

from chairlift.errors import InvalidParameterError
from chairlift.sampling_params import SamplingParams
from chairlift.server.protocol import (
    ChatCompletionRequest,
    ChatMessage,
    CompletionRequest,
    SamplingFields,
    Schema,
)
from chairlift.server.unsupported import drop_unused_fields

MAX_REQUEST_ID_LENGTH = 128

# "List should have at least 1 item after validation, not 0"
_LENGTH = re.compile(r"List should have (at (?:least|most) \d+ items?)")

Prompt = str | list[int]
SchemaT = TypeVar("SchemaT", bound=Schema)

# Fields that go into SamplingParams unchanged.
_SAME_NAME = (
    "n", "min_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
    "presence_penalty", "frequency_penalty", "seed", "ignore_eos", "skip_special_tokens",
    "include_stop_str_in_output",
)  # fmt: skip


def validate(schema: type[SchemaT], body: dict[str, Any]) -> SchemaT:
    """Check ``body`` against ``schema``.

    Raises:
        InvalidParameterError: A field is unknown, missing, not supported, or of the wrong type.
    """
    try:
        return schema.model_validate(drop_unused_fields(body))
    except ValidationError as error:
        raise _explain(error) from None


def _explain(error: ValidationError) -> InvalidParameterError:
    """Turn pydantic's findings into one sentence about the most deeply nested one.

    A field that takes several types yields one finding per type, at the same place.
    """
    found = error.errors(include_url=False, include_context=False)
    paths = [_path(item["loc"]) for item in found]
    path = max(paths, key=lambda candidate: candidate.count(".") + candidate.count("["))
    here = [item for item, place in zip(found, paths, strict=True) if place == path]
    first = here[0]
    if first["type"] == "extra_forbidden":
        message = f"{path} is not a known field; leave it out"
    elif first["type"] == "missing":
        message = f"{path} is required"
    else:
        wanted = " or ".join(dict.fromkeys(_wanted(item["msg"]) for item in here))
        message = f"{path} must be {wanted}, got {reprlib.repr(first['input'])}"
    return InvalidParameterError(message, param=path)


def _path(loc: Iterable[int | str]) -> str:
    """Write ``("messages", 0, "content", "list[TextPart]", 1, "type")`` as users would."""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "str" and "[" not in part:
            path += f".{part}" if path else part
    return path


def _wanted(message: str) -> str:
    """Turn what pydantic says into what comes after "must be"."""
    if length := _LENGTH.match(message):
        return f"a list of {length[1]}"
    return message.removeprefix("Input should be ").replace("a valid ", "a ")


def check_stream_options(request: SamplingFields) -> None:
    """Refuse options that have no effect.

    Raises:
        InvalidParameterError: ``stream_options`` without ``stream``, or ``prompt_logprobs`` with.
    """
    if request.stream_options is not None and not request.stream:
        raise InvalidParameterError(
            "stream_options is only for stream: true", param="stream_options"
        )
    if request.prompt_logprobs is not None and request.stream:
        raise InvalidParameterError(
            "prompt_logprobs is not available in a stream; set stream to false",
            param="prompt_logprobs",
        )


def prompts_of(prompt: Any) -> list[Prompt]:
    """Take apart the ``prompt`` of a completion request.

    Returns:
        Texts or lists of token ids; at least one, none empty. Ids may still be out of range.

    Raises:
        InvalidParameterError: Empty, or none of the four forms.
    """
    many = [prompt] if isinstance(prompt, str) or _are_all(prompt, int) else prompt
    if not isinstance(many, list) or not many:
        raise _bad_prompt("prompt", prompt)
    is_single = many is not prompt
    if not _are_all(many, str) and not _are_all(many, list):
        raise _bad_prompt("prompt", prompt)
    for index, item in enumerate(many):
        name = "prompt" if is_single else f"prompt[{index}]"
        if not item or not (isinstance(item, str) or _are_all(item, int)):
            raise _bad_prompt(name, item)
    return many


def _are_all(items: Any, kind: type) -> bool:
    # type() rather than isinstance(): True is no token id.
    return isinstance(items, list) and set(map(type, items)) == {kind}


def _bad_prompt(name: str, value: Any) -> InvalidParameterError:
    if isinstance(value, str | list) and not value:
        message = f"{name} must not be empty; send at least one character or token id"
    else:
        message = (
            f"{name} must be a string, a list of strings, a list of token ids or a list of lists "
            f"of token ids, got {reprlib.repr(value)}"
        )
    return InvalidParameterError(message, param="prompt")


def token_ids_of(tokens: Any, vocab_size: int) -> list[int]:
    """Check the ``tokens`` of a detokenise request.

    Raises:
        InvalidParameterError: Not a list of ids of this vocabulary.
    """
    if tokens != [] and not _are_all(tokens, int):
        raise InvalidParameterError(
            f"tokens must be a list of token ids, got {reprlib.repr(tokens)}", param="tokens"
        )
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise InvalidParameterError(
                f"tokens holds {token}, but the vocabulary has ids 0 to {vocab_size - 1}",
                param="tokens",
            )
    return list(tokens)


def completion_sampling_params(request: CompletionRequest) -> SamplingParams:
    """Sampling parameters of a completion.

    ``echo`` reports the prompt's logprobs along with the output's, and makes ``max_tokens`` 0
    (score the prompt, generate nothing) possible.
    """
    prompt_logprobs = request.prompt_logprobs
    max_tokens = 16 if request.max_tokens is None else request.max_tokens
    if request.echo and prompt_logprobs is None:
        prompt_logprobs = 0 if request.logprobs is None and max_tokens == 0 else request.logprobs
    return _sampling_params(request, max_tokens, request.logprobs, prompt_logprobs)


def chat_sampling_params(request: ChatCompletionRequest) -> SamplingParams:
    """Sampling parameters of a chat completion; without a limit it may fill the context.

    Raises:
        InvalidParameterError: A value out of bounds, ``max_tokens`` and ``max_completion_tokens``
            that differ, or ``top_logprobs`` without ``logprobs``.
    """
    max_tokens = request.max_completion_tokens
    if max_tokens is None:
        max_tokens = request.max_tokens
    elif request.max_tokens not in (None, max_tokens):
        raise InvalidParameterError(
            f"max_tokens ({request.max_tokens}) and max_completion_tokens ({max_tokens}) mean the "
            "same and differ; send one",
            param="max_completion_tokens",
        )
    if request.top_logprobs is not None and not request.logprobs:
        raise InvalidParameterError("top_logprobs needs logprobs to be true", param="top_logprobs")
    if request.top_logprobs is not None:
        _check_top_logprobs(request.top_logprobs)
    num_logprobs = (request.top_logprobs or 0) if request.logprobs else None
    return _sampling_params(request, max_tokens, num_logprobs, request.prompt_logprobs)


def _check_top_logprobs(value: int) -> None:
    try:
        SamplingParams(logprobs=value)
    except InvalidParameterError as error:
        message = error.message.replace("logprobs", "top_logprobs", 1)
        raise InvalidParameterError(message, param="top_logprobs") from None


def _sampling_params(
    request: SamplingFields,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> SamplingParams:
    stop = request.stop if request.stop is not None else ()
    return SamplingParams(
        **{name: getattr(request, name) for name in _SAME_NAME},
        max_tokens=max_tokens,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=tuple(request.stop_token_ids or ()),
        logit_bias=_logit_bias(request.logit_bias),
    )


def _logit_bias(biases: dict[str, float] | None) -> dict[int, float] | None:
    if biases is None:
        return None
    for key in biases:
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise InvalidParameterError(
                f"logit_bias keys must be token ids, got {reprlib.repr(key)}", param="logit_bias"
            )
    return {int(key): bias for key, bias in biases.items()}


def messages_of(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as chat templates take them, without absent fields."""
    return [
        message.model_dump(include={"role", "content", "name"}, exclude_none=True)
        for message in messages
    ]


def check_request_id(value: str, name: str) -> str:
    """Return a client's request id if it can go into headers, logs and ids.

    Raises:
        InvalidParameterError: Empty, too long, or with characters that are not printable ASCII.
    """
    if 0 < len(value) <= MAX_REQUEST_ID_LENGTH and all("!" <= c <= "~" for c in value):
        return value
    raise InvalidParameterError(
        f"{name} must be 1 to {MAX_REQUEST_ID_LENGTH} printable ASCII characters without spaces, "
        f"got {reprlib.repr(value)}",
        param=name,
    )
