"""The plan of one step and its result: plain data across the seam to the model runner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from chairlift.inputs import CoreRequest
from chairlift.outputs import TokenLogprob


class NewRequest(NamedTuple):
    """A request the runner has not seen yet (``output_token_ids`` only after a replay)."""

    request: CoreRequest
    output_token_ids: tuple[int, ...] = ()


class ScheduledRequest(NamedTuple):
    """One row of the step's flat batch.

    A named tuple rather than a dataclass: one is made per running request and step.

    Attributes:
        num_computed_tokens: Tokens whose KV is in the cache before this step; the position of
            the first token computed now.
        num_scheduled_tokens: How many are computed now, at least 1.
        new_block_ids: Blocks to append to the request's block table. With ``replace_blocks`` the
            whole table, because the request starts or comes back.
        yields_token: The last token known so far is computed, so the next one is sampled.
    """

    request_id: str
    num_computed_tokens: int
    num_scheduled_tokens: int
    new_block_ids: tuple[int, ...]
    replace_blocks: bool
    yields_token: bool


class BlockCopy(NamedTuple):
    """One KV block, all layers of it, to be copied between the pool and the second tier."""

    block_id: int
    slot: int


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """Which requests run in this step and how many tokens each gets.

    Attributes:
        step: Number of this step, from 0.
        scheduled: Rows of the flat batch, in order.
        new_requests: Requests among ``scheduled`` that the runner must register first.
        finished_request_ids: Requests the runner may forget, before it does anything else.
        preempted_request_ids: Requests that lost their blocks; the runner keeps their tokens.
        swap_out: Blocks whose content goes to the second tier, before anything else is done: the
            rows of this step may write over them.
        swap_in: Content that comes back from there, after that and before the forward. No slot is
            both read and written in one step, except that one may be written first, then read.
    """

    step: int
    scheduled: list[ScheduledRequest]
    new_requests: list[NewRequest] = field(default_factory=list)
    finished_request_ids: list[str] = field(default_factory=list)
    preempted_request_ids: list[str] = field(default_factory=list)
    swap_out: list[BlockCopy] = field(default_factory=list)
    swap_in: list[BlockCopy] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Nothing to compute; ``finished_request_ids`` may still hold news for the runner."""
        return not self.scheduled

    @property
    def num_copies(self) -> int:
        """KV blocks copied between the tiers."""
        return len(self.swap_out) + len(self.swap_in)


@dataclass(frozen=True, slots=True)
class ModelRunnerOutput:
    """Result of one step, by request id.

    Attributes:
        sampled_token_ids: New tokens of each request whose row yields; more than one with
            speculation.
        logprobs: One per new token, for requests that ask.
        prompt_logprobs: Of the prompt positions whose next-token distribution was computed in
            this step and not reported before, in order, for requests that ask.
        errors: Requests that failed on their own (for example NaN logits), with a message.
        copies_failed: The step failed as a whole, so its ``swap_out`` may not have been done.
    """

    sampled_token_ids: dict[str, tuple[int, ...]]
    logprobs: dict[str, tuple[TokenLogprob, ...]] = field(default_factory=dict)
    prompt_logprobs: dict[str, tuple[TokenLogprob, ...]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    copies_failed: bool = False
