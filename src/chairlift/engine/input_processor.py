"""The door: a prompt and its parameters become a request that is known to fit, or an error."""

from __future__ import annotations

import asyncio
import operator
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from chairlift.config import EngineLimits
from chairlift.errors import ContextLengthError, InvalidParameterError
from chairlift.inputs import NOBODY, Account, CoreRequest, GenerateRequest
from chairlift.sampling_params import SamplingParams
from chairlift.tokenization.tokenizer import Tokenizer

_SEED_BITS = 63

# A text of fewer bytes than this per token that fits is tokenised to see whether it does fit: to
# find the vocabulary's longest token, the first time, takes longer.
_USUAL_TOKEN_BYTES = 4

# Texts longer than this are tokenised in a worker thread: some 2 ms of work, at about 2 MB/s.
_LONG_TEXT_CHARS = 4096


class InputProcessor:
    """Tokenises and checks requests against the one bound that the scheduler relies on.

    Args:
        limits: What the model and the KV pool can hold.
        clock: Monotonic seconds; the clock of the engine.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        limits: EngineLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokenizer = tokenizer
        self._limits = limits
        self._clock = clock

    def process(
        self,
        request_id: str,
        prompt: str | Sequence[int],
        sampling_params: SamplingParams,
        *,
        add_special_tokens: bool = True,
        cache_salt: str = "",
        account: Account = NOBODY,
        param: str = "prompt",
    ) -> GenerateRequest:
        """Make a request of a prompt.

        Args:
            prompt: Text, or token ids that are taken as they are.
            add_special_tokens: Let the tokenizer put its special tokens around a text, as its own
                files say; chat templates have written theirs already.
            cache_salt: Only requests of the same salt share prefix-cache blocks.
            account: For whom it runs, and how urgent it is.
            param: Name of the prompt's field, for errors.

        Returns:
            The request, with ``max_tokens`` (``None``: what fits) and ``seed`` (``None``: a fresh
            random one) filled in.

        Raises:
            InvalidParameterError: The prompt is empty, no valid text, or holds an id outside the
                vocabulary; or a parameter does not fit this model.
            ContextLengthError: Prompt and output together cannot fit.
        """
        arrival_time_s = self._clock()
        sampling_params.check_against_vocabulary(self._limits.vocab_size)
        if isinstance(prompt, str):
            token_ids = tuple(
                self.tokenize(prompt, add_special_tokens=add_special_tokens, param=param)
            )
        else:
            token_ids = self._check_token_ids(prompt, param)
        if not token_ids:
            raise InvalidParameterError(
                f"{param} must hold at least one token, got an empty one", param=param
            )
        return GenerateRequest(
            request_id=request_id,
            prompt_token_ids=token_ids,
            sampling_params=self._complete(sampling_params, len(token_ids), param),
            arrival_time_s=arrival_time_s,
            cache_salt=cache_salt,
            tenant=account.tenant,
            priority=account.priority,
        )

    def tokenize(
        self, text: str, *, add_special_tokens: bool = True, param: str = "prompt"
    ) -> list[int]:
        """Token ids of a text.

        Raises:
            InvalidParameterError: It is no valid Unicode text (a lone surrogate).
            ContextLengthError: It is so long that it cannot fit however it is tokenised; this is
                found out without tokenising it.
        """
        try:
            num_bytes = len(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise InvalidParameterError(
                f"{param} is not valid Unicode: lone surrogate U+{ord(text[error.start]):04X} at "
                f"character {error.start}; send whole characters",
                param=param,
            ) from None
        if num_bytes > self._limits.max_total_tokens * _USUAL_TOKEN_BYTES:
            self._check_absurd_length(num_bytes, param)
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def _check_absurd_length(self, num_bytes: int, param: str) -> None:
        """Refuse a text that the vocabulary's longest tokens could not bring under the limit."""
        longest = self._tokenizer.max_token_bytes
        if num_bytes > self._limits.max_total_tokens * longest:
            raise ContextLengthError(
                f"{param} has {num_bytes} bytes, but at most {self._limits.max_total_tokens} "
                f"tokens fit, of at most {longest} bytes each; shorten it",
                param=param,
            )

    def _check_token_ids(self, token_ids: Sequence[int], param: str) -> tuple[int, ...]:
        """Refuse what is no token id of this model; integers of other types become ``int``."""
        if len(token_ids) > self._limits.max_total_tokens:
            raise self._too_long(len(token_ids), None, param)
        if not set(map(type, token_ids)) <= {int}:
            token_ids = [_as_int(token_id, param) for token_id in token_ids]
        if len(token_ids) and not 0 <= min(token_ids) <= max(token_ids) < self._limits.vocab_size:
            bad = next(t for t in token_ids if not 0 <= t < self._limits.vocab_size)
            raise InvalidParameterError(
                f"{param} holds token id {bad}, but the vocabulary has ids 0 to "
                f"{self._limits.vocab_size - 1}",
                param=param,
            )
        return tuple(token_ids)

    def _complete(
        self, params: SamplingParams, num_prompt_tokens: int, param: str
    ) -> SamplingParams:
        """Fill in what was left open, and check that prompt and output can fit."""
        limits = self._limits
        max_tokens = params.max_tokens
        if max_tokens is None:
            max_tokens = limits.max_total_tokens - num_prompt_tokens
            if max_tokens < 1:
                raise self._too_long(num_prompt_tokens, None, param)
        elif not limits.fits(num_prompt_tokens, max_tokens):
            raise self._too_long(num_prompt_tokens, max_tokens, param)
        if params.min_tokens > max_tokens:
            raise InvalidParameterError(
                f"min_tokens must be at most {max_tokens}, which is what fits after a prompt of "
                f"{num_prompt_tokens} tokens, got {params.min_tokens}",
                param="min_tokens",
            )
        seed = secrets.randbits(_SEED_BITS) if params.seed is None else params.seed
        return replace(params, max_tokens=max_tokens, seed=seed)

    def _too_long(
        self, num_prompt_tokens: int, max_tokens: int | None, param: str
    ) -> ContextLengthError:
        limits = self._limits
        asked = f"{num_prompt_tokens} tokens of prompt"
        if max_tokens is not None:
            asked += f" and max_tokens {max_tokens} make {num_prompt_tokens + max_tokens}"
        room = limits.max_total_tokens - num_prompt_tokens
        if max_tokens is None or room < 1:
            way_out = "shorten the prompt"
        else:
            way_out = f"lower max_tokens to {room} or shorten the prompt"
        if limits.pool_tokens < limits.max_model_len:
            way_out += ", or start the engine with a larger KV pool (num_kv_blocks)"
        return ContextLengthError(
            f"the request is too long: {asked}, but prompt and output together may have at most "
            f"{limits.max_total_tokens} tokens (max_model_len is {limits.max_model_len}, the KV "
            f"pool holds {limits.pool_tokens} tokens); {way_out}",
            param="max_tokens" if max_tokens is not None and room >= 1 else param,
        )


class AsyncInputProcessor:
    """:class:`InputProcessor` for an event loop, which long texts do not hold up.

    The tokenizer works in native code without the interpreter lock.
    """

    def __init__(self, processor: InputProcessor) -> None:
        self._processor = processor

    async def process(
        self,
        request_id: str,
        prompt: str | Sequence[int],
        sampling_params: SamplingParams,
        *,
        add_special_tokens: bool = True,
        cache_salt: str = "",
        account: Account = NOBODY,
        param: str = "prompt",
    ) -> GenerateRequest:
        """As :meth:`InputProcessor.process`."""

        def run() -> GenerateRequest:
            return self._processor.process(
                request_id,
                prompt,
                sampling_params,
                add_special_tokens=add_special_tokens,
                cache_salt=cache_salt,
                account=account,
                param=param,
            )

        return run() if _is_quick(prompt) else await asyncio.to_thread(run)

    async def tokenize(
        self, text: str, *, add_special_tokens: bool = True, param: str = "prompt"
    ) -> list[int]:
        """As :meth:`InputProcessor.tokenize`."""

        def run() -> list[int]:
            return self._processor.tokenize(
                text, add_special_tokens=add_special_tokens, param=param
            )

        return run() if _is_quick(text) else await asyncio.to_thread(run)


def fan_out(
    request: GenerateRequest, core_id: str, eos_token_ids: tuple[int, ...]
) -> list[CoreRequest]:
    """Split a request into its choices: ``core_id``, or with ``n > 1`` ``core_id/0`` and so on.

    Prompt logprobs are the same for all choices, so the first alone computes them.
    """
    params = request.sampling_params
    others = params
    if params.n > 1 and params.prompt_logprobs is not None and params.max_tokens != 0:
        others = replace(params, prompt_logprobs=None)
    return [
        CoreRequest(
            request_id=core_id if params.n == 1 else f"{core_id}/{index}",
            prompt_token_ids=request.prompt_token_ids,
            sampling_params=others if index else params,
            arrival_time_s=request.arrival_time_s,
            eos_token_ids=eos_token_ids,
            choice_index=index,
            cache_salt=request.cache_salt,
            tenant=request.tenant,
            priority=request.priority,
        )
        for index in range(params.n)
    ]


def _is_quick(prompt: str | Sequence[int]) -> bool:
    return not isinstance(prompt, str) or len(prompt) <= _LONG_TEXT_CHARS


def _as_int(token_id: object, param: str) -> int:
    """An integer of any type (NumPy's too) as an ``int``."""
    if not isinstance(token_id, bool):
        try:
            return operator.index(token_id)  # type: ignore[arg-type]
        except TypeError:
            pass
    shown = repr(token_id)
    raise InvalidParameterError(
        f"{param} must hold token ids, which are integers, got {shown[:60]}", param=param
    )
