"""Stand-ins for the model runner and the clock, and builders for core objects."""

from __future__ import annotations

import hashlib
from typing import Any

from chairlift.config import BatchingMode, EngineLimits, SchedulerConfig
from chairlift.core.scheduler import Scheduler
from chairlift.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from chairlift.core.step_cost import StepCost
from chairlift.inputs import CoreRequest
from chairlift.outputs import StepOutput
from chairlift.sampling_params import SamplingParams


def fake_next_token(token_ids: list[int], vocab_size: int = 1000) -> int:
    """A next token that depends on every token before it, and never is 0 or 1."""
    digest = hashlib.sha256(repr(token_ids).encode()).digest()
    return 2 + int.from_bytes(digest[:4], "little") % (vocab_size - 2)


class FakeRunner:
    """Checks every plan against what it knows, and samples with :func:`fake_next_token`.

    It keeps tokens by KV *slot*, as the real cache does, and reads a request's context back through
    its block table: a wrong table, a block shared by mistake or a token computed out of turn gives
    another token.
    """

    def __init__(self, block_size: int, vocab_size: int = 1000) -> None:
        self.block_size = block_size
        self.vocab_size = vocab_size
        self.slots: dict[int, int] = {}
        self.second_tier: dict[int, list[int | None]] = {}
        self.token_ids: dict[str, list[int]] = {}
        self.tables: dict[str, list[int]] = {}
        self.plans: list[SchedulerOutput] = []

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """Store the scheduled tokens in their slots, then sample the rows that yield."""
        self.plans.append(plan)
        self._copy(plan)
        for request_id in plan.finished_request_ids:
            del self.token_ids[request_id], self.tables[request_id]
        for new in plan.new_requests:
            self.token_ids[new.request.request_id] = [
                *new.request.prompt_token_ids,
                *new.output_token_ids,
            ]
            self.tables[new.request.request_id] = []
        sampled = {}
        for row in plan.scheduled:
            tokens, table = self.token_ids[row.request_id], self.tables[row.request_id]
            if row.replace_blocks:
                table[:] = row.new_block_ids
            else:
                table.extend(row.new_block_ids)
            end = row.num_computed_tokens + row.num_scheduled_tokens
            if not 0 < row.num_scheduled_tokens <= len(tokens) - row.num_computed_tokens:
                raise AssertionError(f"{row} of a request with {len(tokens)} tokens")
            for i in range(row.num_computed_tokens, end):
                self.slots[self._slot(table, i)] = tokens[i]
            if row.yields_token:
                if end != len(tokens):
                    raise AssertionError(f"{row} yields before its last token is computed")
                context = [self.slots[self._slot(table, i)] for i in range(end)]
                sampled[row.request_id] = (fake_next_token(context, self.vocab_size),)
        for request_id, new_ids in sampled.items():
            self.token_ids[request_id].extend(new_ids)
        return ModelRunnerOutput(sampled_token_ids=sampled)

    def _copy(self, plan: SchedulerOutput) -> None:
        """Copy blocks between the tiers as the plan says, checking what it promises."""
        written = [copy.slot for copy in plan.swap_out]
        read = [copy.slot for copy in plan.swap_in]
        if len(set(written)) < len(written):
            raise AssertionError(f"step {plan.step} writes a slot twice: {written}")
        if len({copy.block_id for copy in plan.swap_in}) < len(read):
            raise AssertionError(f"step {plan.step} fills a block twice: {plan.swap_in}")
        for block_id, slot in plan.swap_out:
            start = block_id * self.block_size
            self.second_tier[slot] = [self.slots.get(start + i) for i in range(self.block_size)]
        for block_id, slot in plan.swap_in:
            for i, token_id in enumerate(self.second_tier[slot]):
                if token_id is not None:
                    self.slots[block_id * self.block_size + i] = token_id

    def _slot(self, table: list[int], position: int) -> int:
        return table[position // self.block_size] * self.block_size + position % self.block_size


def make_limits(
    num_kv_blocks: int = 8,
    block_size: int = 4,
    max_model_len: int = 1 << 20,
    num_swap_blocks: int = 0,
) -> EngineLimits:
    """Limits with tiny numbers."""
    return EngineLimits(
        vocab_size=1000,
        max_model_len=max_model_len,
        block_size=block_size,
        num_kv_blocks=num_kv_blocks,
        max_num_waiting=1 << 20,
        num_swap_blocks=num_swap_blocks,
        swap_block_s=1e-4,
    )


def make_request(
    request_id: str,
    prompt: int | list[int] = 1,
    *,
    max_tokens: int = 4,
    arrival_time_s: float = 0.0,
    cache_salt: str = "",
    eos: tuple[int, ...] = (),
    tenant: str = "",
    priority: int = 0,
    **params: object,
) -> CoreRequest:
    """A request whose prompt is given, or so many tokens that no other request id has."""
    if isinstance(prompt, int):
        digest = hashlib.sha256(request_id.encode()).digest()
        prompt = [2 + (digest[i % 32] * 7 + i) % 990 for i in range(prompt)]
    return CoreRequest(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling_params=SamplingParams(max_tokens=max_tokens, **params),  # type: ignore[arg-type]
        arrival_time_s=arrival_time_s,
        eos_token_ids=eos,
        cache_salt=cache_salt,
        tenant=tenant,
        priority=priority,
    )


class Bench:
    """A scheduler and a fake runner, stepped by hand with one second per step."""

    def __init__(
        self,
        *,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        num_kv_blocks: int = 64,
        block_size: int = 4,
        batching: BatchingMode = "continuous",
        batch_window_s: float = 0.0,
        enable_prefix_caching: bool = True,
        num_swap_blocks: int = 0,
        step_cost: StepCost | None = None,
        **scheduler_options: Any,
    ) -> None:
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                batching=batching,
                batch_window_s=batch_window_s,
                **scheduler_options,
            ),
            make_limits(num_kv_blocks, block_size, num_swap_blocks=num_swap_blocks),
            enable_prefix_caching=enable_prefix_caching,
            step_cost=step_cost,
        )
        self.runner = FakeRunner(block_size)
        self.now_s = 0.0
        self.outputs: dict[str, list[StepOutput]] = {}
        self.returned_at: dict[str, int] = {}
        self.batches: list[dict[str, int]] = []
        self.tenant_of: dict[str, str] = {}

    def add(self, *requests: CoreRequest) -> None:
        """Queue requests."""
        for request in requests:
            self.scheduler.add_request(request)
            self.tenant_of[request.request_id] = request.tenant

    def step(self) -> SchedulerOutput:
        """Run one step; an empty plan is executed too, but not counted among ``batches``."""
        plan = self.scheduler.schedule(self.now_s)
        result = self.runner.execute(plan)
        self.now_s += 1.0
        outputs = self.scheduler.update(plan, result, self.now_s)
        if plan.scheduled:
            self.batches.append({r.request_id: r.num_scheduled_tokens for r in plan.scheduled})
        self.collect(outputs)
        return plan

    def collect(self, outputs: list[StepOutput]) -> None:
        """Remember what came out, by request."""
        for output in outputs:
            self.outputs.setdefault(output.request_id, []).append(output)
            if output.finish_reason is not None:
                self.returned_at[output.request_id] = len(self.batches)

    def abort(self, *request_ids: str) -> None:
        """Abort requests and remember their outputs."""
        self.collect(self.scheduler.abort(request_ids))

    def run(self, max_steps: int = 10_000) -> None:
        """Step until nothing is left to do."""
        for _ in range(max_steps):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError(f"still work after {max_steps} steps")

    def tenants_running(self) -> list[str]:
        """Tenants of the requests in the last batch."""
        names = self.batches[-1] if self.batches else {}
        return [self.tenant_of[name] for name in names]

    def tokens_of(self, request_id: str) -> list[int]:
        """All output tokens of a request so far."""
        return [t for output in self.outputs.get(request_id, []) for t in output.token_ids]


def expected_tokens(request: CoreRequest) -> list[int]:
    """What :class:`FakeRunner` must produce for a request that only ``max_tokens`` ends."""
    tokens = list(request.prompt_token_ids)
    max_tokens = request.sampling_params.max_tokens or 0
    for _ in range(max_tokens):
        tokens.append(fake_next_token(tokens))
    return tokens[len(request.prompt_token_ids) :]
