"""A request as the scheduler sees it: its tokens, how far it is computed, and its state."""

from __future__ import annotations

from enum import IntEnum

from chairlift.inputs import CoreRequest
from chairlift.outputs import FinishReason, RequestTimings


class RequestStatus(IntEnum):
    """Where a request is; only :class:`~chairlift.core.scheduler.Scheduler` moves it on."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED = 3


class Request:
    """Mutable state of one request, written by the scheduler alone.

    There is no prefill and no decode: ``num_computed_tokens`` catches up with ``num_tokens``, and
    each time it does, a token is sampled and ``num_tokens`` grows by one.

    Attributes:
        arrival_index: How many requests came before it; the order of arrival.
        num_times_passed: Later requests that started before it because its blocks were not there.
        token_ids: Prompt and output so far.
        num_computed_tokens: Leading tokens whose KV is in the cache.
        max_num_tokens: Length at which it ends.
        num_cached_tokens: Prompt tokens found in the prefix cache when it first ran.
        num_preemptions: How often it lost its blocks.
        keeps_blocks: It starts or returns only with blocks for all it may ever need, and is not
            preempted after that.
        num_swapped_tokens: Of those it had on its last return, tokens from the second tier.
        only_scores_prompt: ``max_tokens`` is 0: the prompt is computed and nothing sampled.
        block_hashes: Chained hashes of its leading full blocks.
        num_slots: Tokens that its blocks hold.
        num_findable_blocks: Leading blocks that the prefix cache knows.

    The last three and ``num_swapped_tokens`` are the KV cache manager's, which alone writes them.
    """

    __slots__ = (
        "arrival_index",
        "block_hashes",
        "core_request",
        "first_token_s",
        "keeps_blocks",
        "max_num_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_findable_blocks",
        "num_preemptions",
        "num_prompt_tokens",
        "num_slots",
        "num_swapped_tokens",
        "num_times_passed",
        "only_scores_prompt",
        "request_id",
        "scheduled_s",
        "status",
        "stop_token_ids",
        "tenant",
        "token_ids",
    )

    def __init__(
        self, core_request: CoreRequest, max_model_len: int, arrival_index: int = 0
    ) -> None:
        params = core_request.sampling_params
        self.core_request = core_request
        self.request_id = core_request.request_id
        self.tenant = core_request.tenant
        self.arrival_index = arrival_index
        self.num_times_passed = 0
        self.token_ids: list[int] = list(core_request.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.num_computed_tokens = 0
        self.max_num_tokens = max_model_len
        if params.max_tokens is not None:
            self.max_num_tokens = min(max_model_len, self.num_prompt_tokens + params.max_tokens)
        eos = () if params.ignore_eos else core_request.eos_token_ids
        self.stop_token_ids = frozenset((*params.stop_token_ids, *eos))
        self.status = RequestStatus.WAITING
        self.num_cached_tokens = 0
        self.num_preemptions = 0
        self.keeps_blocks = False
        self.num_swapped_tokens = 0
        self.only_scores_prompt = self.max_num_tokens == self.num_prompt_tokens
        self.block_hashes: list[bytes] = []
        self.num_slots = 0
        self.num_findable_blocks = 0
        self.scheduled_s = 0.0
        self.first_token_s = 0.0

    @property
    def num_tokens(self) -> int:
        """Prompt plus output tokens so far."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Output tokens so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_tokens_to_hold(self) -> int:
        """Tokens that its blocks must have room for when it starts or returns.

        The KV of the last token is never computed.
        """
        if self.keeps_blocks:
            return max(self.num_tokens, self.max_num_tokens - 1)
        return self.num_tokens

    def accept(
        self, sampled: tuple[int, ...]
    ) -> tuple[tuple[int, ...], FinishReason | None, int | None]:
        """Append sampled tokens up to the one that ends the request, if one does.

        Returns:
            The tokens appended, why the request ends (``None``: it goes on), and the stop token id
            of the request that ended it, if one did.
        """
        known = self.token_ids
        if not self.stop_token_ids:  # without a look at each: simulated steps bring hundreds
            taken = sampled[: self.max_num_tokens - len(known)]
            known.extend(taken)
            is_whole = len(known) >= self.max_num_tokens
            return taken, FinishReason.LENGTH if is_whole else None, None
        for count, token_id in enumerate(sampled, start=1):
            known.append(token_id)
            if token_id in self.stop_token_ids:
                is_eos = token_id not in self.core_request.sampling_params.stop_token_ids
                return sampled[:count], FinishReason.STOP, None if is_eos else token_id
            if len(known) >= self.max_num_tokens:
                return sampled[:count], FinishReason.LENGTH, None
        return sampled, None, None

    def timings(self, last_token_s: float) -> RequestTimings:
        """The request's moments, its last token having come at ``last_token_s``."""
        return RequestTimings(
            queued_s=self.core_request.arrival_time_s,
            scheduled_s=self.scheduled_s,
            first_token_s=self.first_token_s,
            last_token_s=last_token_s,
        )
