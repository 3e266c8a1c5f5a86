"""How the tokens of one request are chosen; checked once, when it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chairlift.errors import InvalidParameterError

MAX_N = 128
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_TOKEN_IDS = 1024
MAX_LOGIT_BIAS = 1024
SEED_MIN, SEED_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling settings of one request, names and meanings as in vLLM and OpenAI's API.

    The logits are changed in this order: allowed and minimum-length masks, ``logit_bias``,
    penalties, ``temperature``, ``min_p``, ``top_k``, ``top_p``. Reported logprobs are those of the
    model itself, before any of it.

    Attributes:
        n: Number of choices, each sampled on its own random stream. 1 to 128.
        max_tokens: Most tokens to generate; ``None`` means up to the context length. 0 is allowed
            only together with ``prompt_logprobs``: the prompt is scored and nothing generated.
        min_tokens: No EOS, stop token or stop string ends the request before so many tokens.
        temperature: 0 is greedy (ties go to the lowest token id).
        top_k: Keep the k likeliest tokens; 0 or -1 keeps all.
        top_p: Keep the smallest set of likeliest tokens that holds this probability. (0, 1].
        min_p: Drop tokens less likely than ``min_p`` times the likeliest. [0, 1].
        repetition_penalty: Divide positive and multiply negative logits of tokens already in
            prompt or output by it (CTRL, Keskar et al. 2019). (0, 10].
        presence_penalty: Subtracted once from logits of tokens in the output. [-2, 2].
        frequency_penalty: Subtracted for each occurrence in the output. [-2, 2].
        logit_bias: Added to the logits, by token id. Values in [-100, 100].
        seed: Makes sampling repeatable; ``None`` takes a fresh random seed, which is reported.
        stop: Strings that end the request; not part of the output unless
            ``include_stop_str_in_output``.
        stop_token_ids: Token ids that end the request; the token itself is not in the text.
        ignore_eos: Go on past the model's end-of-sequence tokens.
        logprobs: Report the chosen token's logprob and so many top alternatives; ``None``: none.
        prompt_logprobs: The same for each prompt token but the first.
        skip_special_tokens: Leave special tokens out of the text.
        include_stop_str_in_output: Keep the stop string that ended the request in the text.

    Raises:
        InvalidParameterError: A value is of the wrong type or out of its bounds.
    """

    n: int = 1
    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", _as_tuple(self.stop, str, "stop"))
        object.__setattr__(
            self, "stop_token_ids", _as_tuple(self.stop_token_ids, int, "stop_token_ids")
        )
        _check_int("n", self.n, 1, MAX_N)
        if self.max_tokens is not None:
            _check_int("max_tokens", self.max_tokens, 0, None)
            if self.max_tokens == 0 and self.prompt_logprobs is None:
                raise InvalidParameterError(
                    "max_tokens must be at least 1, got 0; 0 is only for scoring a prompt "
                    "(prompt_logprobs, or echo over HTTP)",
                    param="max_tokens",
                )
        _check_int("min_tokens", self.min_tokens, 0, self.max_tokens)
        _check_float("temperature", self.temperature, 0.0, 100.0)
        _check_int("top_k", self.top_k, -1, None)
        _check_float("top_p", self.top_p, 0.0, 1.0, above=True)
        _check_float("min_p", self.min_p, 0.0, 1.0)
        _check_float("repetition_penalty", self.repetition_penalty, 0.0, 10.0, above=True)
        _check_float("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_float("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if self.seed is not None:
            _check_int("seed", self.seed, SEED_MIN, SEED_MAX)
        self._check_stops()
        self._check_logit_bias()
        for name, value in (
            ("logprobs", self.logprobs),
            ("prompt_logprobs", self.prompt_logprobs),
        ):
            if value is not None:
                _check_int(name, value, 0, MAX_LOGPROBS)
        for name in ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output"):
            if not isinstance(getattr(self, name), bool):
                raise _wrong_type(name, "a boolean", getattr(self, name))

    def _check_stops(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidParameterError(
                f"stop may hold at most {MAX_STOP_STRINGS} strings, got {len(self.stop)}",
                param="stop",
            )
        if any(not s for s in self.stop):
            raise InvalidParameterError(
                "stop holds an empty string, which would end every request at once; remove it",
                param="stop",
            )
        if len(self.stop_token_ids) > MAX_STOP_TOKEN_IDS:
            raise InvalidParameterError(
                f"stop_token_ids may hold at most {MAX_STOP_TOKEN_IDS} ids, "
                f"got {len(self.stop_token_ids)}",
                param="stop_token_ids",
            )
        for token_id in self.stop_token_ids:
            _check_int("stop_token_ids", token_id, 0, None)

    def _check_logit_bias(self) -> None:
        if self.logit_bias is None:
            return
        if not isinstance(self.logit_bias, Mapping):
            raise _wrong_type("logit_bias", "a mapping of token ids to numbers", self.logit_bias)
        if len(self.logit_bias) > MAX_LOGIT_BIAS:
            raise InvalidParameterError(
                f"logit_bias may hold at most {MAX_LOGIT_BIAS} entries, got {len(self.logit_bias)}",
                param="logit_bias",
            )
        for token_id, bias in self.logit_bias.items():
            _check_int("logit_bias key", token_id, 0, None, param="logit_bias")
            _check_float(f"logit_bias[{token_id}]", bias, -100.0, 100.0, param="logit_bias")

    def check_against_vocabulary(self, vocab_size: int) -> None:
        """Refuse token ids and counts that this vocabulary does not have.

        Raises:
            InvalidParameterError: An id of ``stop_token_ids`` or ``logit_bias``, or ``top_k``, is
                not below (or at most) ``vocab_size``.
        """
        for token_id in self.stop_token_ids:
            _check_id("stop_token_ids", token_id, vocab_size)
        for token_id in self.logit_bias or ():
            _check_id("logit_bias", token_id, vocab_size)
        if self.top_k > vocab_size:
            raise InvalidParameterError(
                f"top_k must be at most the vocabulary size {vocab_size}, got {self.top_k}; "
                "use 0 to keep every token",
                param="top_k",
            )


def _check_id(name: str, token_id: int, vocab_size: int) -> None:
    if token_id >= vocab_size:
        raise InvalidParameterError(
            f"{name} holds token id {token_id}, but the vocabulary has ids 0 to {vocab_size - 1}",
            param=name,
        )


def _as_tuple(value: Any, kind: type, name: str) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, kind) and not isinstance(value, bool):
        return (value,)
    if not isinstance(value, (list, tuple)):
        raise _wrong_type(name, f"a list of {kind.__name__}", value)
    for item in value:
        if not isinstance(item, kind) or isinstance(item, bool):
            raise _wrong_type(name, f"a list of {kind.__name__}", item)
    return tuple(value)


def _wrong_type(name: str, wanted: str, value: object) -> InvalidParameterError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return InvalidParameterError(f"{name} must be {wanted}, got {shown}", param=name)


def _check_int(
    name: str, value: Any, low: int, high: int | None, *, param: str | None = None
) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        error = _wrong_type(name, "an integer", value)
        error.param = param or name
        raise error
    if value < low or (high is not None and value > high):
        bound = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InvalidParameterError(f"{name} must be {bound}, got {value}", param=param or name)


def _check_float(
    name: str,
    value: Any,
    low: float,
    high: float,
    *,
    above: bool = False,
    param: str | None = None,
) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        error = _wrong_type(name, "a number", value)
        error.param = param or name
        raise error
    inside = low < value <= high if above else low <= value <= high
    if not math.isfinite(value) or not inside:
        bound = f"above {low:g} and at most {high:g}" if above else f"between {low:g} and {high:g}"
        raise InvalidParameterError(f"{name} must be {bound}, got {value}", param=param or name)
