"""From logits to tokens: the sampling state of every running request, and one call a step.

The runner owns a :class:`Sampler` and names requests by the slot it gave them. Everything that
costs is in the native half (csrc/sampler.h); this one turns settings into numbers and results into
records. It knows nothing about text, steps or blocks.

What a token is depends on the request alone: its logits, its settings, the tokens before it, and
the draw of (seed, output position, choice index), which is a hash. There is no random state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chairlift.errors import KernelInputError, RequestFailedError
from chairlift.kernels import sampling
from chairlift.outputs import TokenLogprob
from chairlift.sampling_params import SamplingParams

GREEDY_TEMPERATURE = 1e-5
"""A temperature below this one is greedy: nothing but ties could be drawn differently."""

_SMALLEST_FLOAT32 = float(np.finfo(np.float32).tiny)
_NO_TOKENS: NDArray[np.int32] = np.empty(0, dtype=np.int32)
_NO_TOKENS.flags.writeable = False

# By value of csrc/sampler.h's SampleStatus.
_FAILURES = (
    "",
    "the model's logits for the next token hold NaN or infinity, or no finite number",
    "no token may come next: the allowed tokens, logit_bias and min_tokens exclude all of them",
    "a penalty made a logit infinite; use a repetition_penalty nearer to 1",
)


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One step's result, by row of its logits. R rows; K the most alternatives a row asked for.

    Attributes:
        token_ids: [R] int32; -1 in the rows named in ``errors``.
        logprobs: The model's own logprob of the token, before any change of the logits. [R]
            float32, NaN where not asked for.
        ranks: Place of the token in the model's order, 1 for the likeliest, ties by the lower id.
            [R] int32, 0 where not asked for.
        top_ids: The likeliest tokens, best first. [R, K] int32, -1 past what the row asked for.
        top_logprobs: Theirs. [R, K] float32; the entry of the token itself is the same float as in
            ``logprobs``.
        errors: Why a row has no token.
    """

    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    ranks: NDArray[np.int32]
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float32]
    errors: dict[int, str]

    def token_logprob(self, row: int) -> TokenLogprob | None:
        """Return what is reported about a row's token; ``None`` if it did not ask or failed."""
        rank = int(self.ranks[row])
        if rank == 0:
            return None
        ids = self.top_ids[row].tolist()
        top = [
            (token_id, logprob)
            for token_id, logprob in zip(ids, self.top_logprobs[row].tolist(), strict=True)
            if token_id >= 0
        ]
        return TokenLogprob(int(self.token_ids[row]), float(self.logprobs[row]), rank, tuple(top))


class Sampler:
    """Chooses the next token of each request from its logits.

    The logits of a row are changed in this order: tokens outside the allowed mask, and before
    ``min_tokens`` those that would end the request, become -inf; ``logit_bias`` is added; the
    repetition, frequency and presence penalties apply. Greedy requests then take the largest logit,
    ties going to the lowest id. Others divide by the temperature and keep what ``min_p``, then
    ``top_k``, then ``top_p`` (of what is left) keep; exactly k and the shortest prefix, ties in
    favour of low ids. The kept tokens are walked in the order of their ids until their summed
    probability exceeds the draw.

    The draw is Philox4x32-10 keyed by the seed, with the counter (output position, 0, choice
    index, 0); Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". Tokens and
    logprobs do not depend on the other rows or the number of threads. They are the same bits on
    every instruction set level with fused multiply-add.

    Not for use by two threads at a time. Methods raise :class:`KernelInputError` for arrays of the
    wrong shape or dtype, ids outside the vocabulary, and slots that are free or taken when they
    should not be.
    """

    def __init__(self, vocab_size: int, team: sampling.ThreadTeam) -> None:
        """Make a sampler without requests.

        Args:
            vocab_size: Length of a row of logits.
            team: The threads that share the rows of a step out; kept alive. The instruction set
                level is the current one.
        """
        try:
            self._native = sampling.NativeSampler(vocab_size, team)
        except ValueError as error:
            raise KernelInputError(str(error)) from None
        self.vocab_size = vocab_size

    def add(
        self,
        slot: int,
        params: SamplingParams,
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int] = (),
        *,
        choice_index: int = 0,
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        """Take ``slot`` for a request.

        Args:
            slot: Small non-negative number that names the request from here on.
            params: Checked against the vocabulary; ``seed`` is set unless greedy.
            prompt_token_ids: Counted by the repetition penalty.
            output_token_ids: What it has produced already, after a replay; counted by penalties.
            choice_index: Which of the request's choices this is.
            eos_token_ids: Not sampled before ``min_tokens``, like ``stop_token_ids``, unless
                ``ignore_eos``.
        """
        settings = _settings_of(params, choice_index, eos_token_ids, self.vocab_size)
        counts_prompt = params.repetition_penalty != 1.0
        counts_output = (
            counts_prompt or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
        )
        try:
            self._native.add(
                slot,
                settings,
                np.asarray(prompt_token_ids, dtype=np.int32) if counts_prompt else _NO_TOKENS,
                np.asarray(output_token_ids, dtype=np.int32) if counts_output else _NO_TOKENS,
            )
        except ValueError as error:
            raise KernelInputError(str(error)) from None

    def remove(self, slot: int) -> None:
        """Free ``slot``."""
        try:
            self._native.remove(slot)
        except ValueError as error:
            raise KernelInputError(str(error)) from None

    def append(self, slot: int, token_id: int) -> None:
        """Count a new output token of one request, for its penalties."""
        try:
            self._native.append(slot, token_id)
        except ValueError as error:
            raise KernelInputError(str(error)) from None

    def append_rows(self, slots: NDArray[np.int32], token_ids: NDArray[np.int32]) -> None:
        """Count one new output token of each of many requests; rows with id -1 are passed over.

        Args:
            slots: [R] int32.
            token_ids: [R] int32.
        """
        try:
            self._native.append_rows(slots, token_ids)
        except (TypeError, ValueError) as error:
            raise _input_error(error, slots=slots, token_ids=token_ids) from None

    def sample(
        self,
        logits: NDArray[np.float32],
        slots: NDArray[np.int32],
        output_positions: NDArray[np.int32],
        allowed_bits: NDArray[np.uint32] | None = None,
    ) -> SampledTokens:
        """Choose one token for each row. Changes no state: see :meth:`append_rows`.

        Args:
            logits: [R, vocab_size] float32, contiguous; not written.
            slots: Whose row it is. [R] int32.
            output_positions: How many output tokens the request has before this one. [R] int32.
            allowed_bits: Bit ``id % 32`` of word ``id // 32`` is set where a token may come next.
                [R, ceil(vocab_size / 32)] uint32; ``None`` allows all.

        Returns:
            Tokens by row. A row that cannot have one (NaN in its logits, say) is in ``errors``;
            the others are unaffected.
        """
        try:
            result = self._native.sample(logits, slots, output_positions, allowed_bits)
        except (TypeError, ValueError) as error:
            raise _input_error(
                error,
                logits=logits,
                slots=slots,
                output_positions=output_positions,
                allowed_bits=allowed_bits,
            ) from None
        statuses = result[0]
        errors = (
            {int(row): _FAILURES[statuses[row]] for row in np.flatnonzero(statuses)}
            if statuses.any()
            else {}
        )
        return SampledTokens(*result[1:], errors)

    def prompt_logprobs(
        self, logits: NDArray[np.float32], target_ids: NDArray[np.int32], num_top: int
    ) -> list[TokenLogprob]:
        """Report the model's logprob of a given next token at each row, and its alternatives.

        Args:
            logits: [R, vocab_size] float32, contiguous; not written.
            target_ids: [R] int32.
            num_top: How many of the likeliest tokens to report.

        Raises:
            RequestFailedError: A row holds NaN or infinity.
        """
        try:
            result = self._native.score(logits, target_ids, num_top)
        except (TypeError, ValueError) as error:
            raise _input_error(error, logits=logits, target_ids=target_ids) from None
        statuses = result[0]
        if statuses.any():
            raise RequestFailedError(_FAILURES[statuses.max()])
        scored = SampledTokens(*result[1:], {})
        reports = (scored.token_logprob(row) for row in range(len(target_ids)))
        return [report for report in reports if report is not None]


def uniform_draw(seed: int, output_position: int, choice_index: int) -> float:
    """Return the draw in [0, 1) that decides one output token of one choice.

    Args:
        seed: Any of -2^63 to 2^63 - 1.
        output_position: Output tokens before this one.
        choice_index: Which of the request's choices.
    """
    return sampling.uniform_draw(seed % 2**64, output_position, choice_index)


def _settings_of(
    params: SamplingParams, choice_index: int, eos_token_ids: Sequence[int], vocab_size: int
) -> sampling.SamplingSettings:
    settings = sampling.SamplingSettings()
    settings.greedy = params.temperature < GREEDY_TEMPERATURE
    if not settings.greedy:
        if params.seed is None:
            raise KernelInputError(
                "a sampled request needs a seed; whoever accepts a request without one draws it"
            )
        settings.seed = params.seed % 2**64
        settings.temperature = params.temperature
    settings.choice = choice_index
    settings.top_k = min(max(params.top_k, 0), vocab_size)
    settings.top_p = params.top_p
    settings.min_p = params.min_p
    settings.repetition_penalty = max(params.repetition_penalty, _SMALLEST_FLOAT32)
    settings.presence_penalty = params.presence_penalty
    settings.frequency_penalty = params.frequency_penalty
    settings.min_tokens = params.min_tokens
    settings.num_logprobs = -1 if params.logprobs is None else params.logprobs
    settings.logit_bias = list((params.logit_bias or {}).items())
    if params.min_tokens > 0:
        ends = set(params.stop_token_ids)
        if not params.ignore_eos:
            # Some models name an end token that their vocabulary does not have.
            ends.update(token_id for token_id in eos_token_ids if token_id < vocab_size)
        settings.end_token_ids = sorted(ends)
    return settings


def _input_error(error: Exception, **arrays: NDArray[np.generic] | None) -> KernelInputError:
    """Say what was given when the native half cannot take it: it only says what it wants."""
    if isinstance(error, ValueError):
        return KernelInputError(str(error))
    given = ", ".join(
        f"{name} {getattr(array, 'dtype', type(array).__name__)} {list(np.shape(array))}"
        for name, array in arrays.items()
        if array is not None
    )
    return KernelInputError(
        "the sampler takes contiguous arrays: logits float32 of two dimensions, ids, slots and "
        f"positions int32 of one, allowed_bits uint32 of two; got {given}"
    )
