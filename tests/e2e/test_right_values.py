"""The default model against transformers: same tokens, texts and logprobs on varied prompts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.e2e.reference import CASES, NUM_TOKENS, Case

from chairlift import LLM, RequestOutput, SamplingParams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# Enough for all cases at once, so that none is preempted; the default would take half the memory.
NUM_KV_BLOCKS = 640


@dataclass(frozen=True)
class Compared:
    """A case, what came out of the engine, and how many of its first tokens are the same."""

    case: Case
    output: RequestOutput

    @property
    def num_same(self) -> int:
        """Tokens up to the first that differs."""
        pairs = zip(self.case.output_ids, self.output.choices[0].token_ids, strict=True)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), NUM_TOKENS)

    @property
    def logprob_errors(self) -> list[float]:
        """Distances to the reference of the chosen tokens' logprobs, while the tokens agree."""
        ours = self.output.choices[0].logprobs or ()
        pairs = zip(self.case.logprobs, ours, strict=True)
        return [abs(a - b.logprob) for a, b in pairs][: self.num_same]

    @property
    def prompt_logprob_sum(self) -> float:
        """Sum over the prompt, whose first token has no logprob."""
        return sum(entry.logprob for entry in self.output.prompt_logprobs or () if entry)


@pytest.fixture(scope="module")
def float32(default_model: str) -> Iterator[LLM]:
    """The model in float32."""
    with LLM(default_model, dtype="float32", num_kv_blocks=NUM_KV_BLOCKS) as llm:
        yield llm


@pytest.fixture(scope="module")
def greedy(float32: LLM) -> list[Compared]:
    """All cases, computed as one batch."""
    params = SamplingParams(
        temperature=0.0,
        max_tokens=NUM_TOKENS,
        ignore_eos=True,
        logprobs=0,
        prompt_logprobs=0,
        skip_special_tokens=False,
    )
    outputs = float32.generate([case.prompt_ids for case in CASES], params)
    return [Compared(case, output) for case, output in zip(CASES, outputs, strict=True)]


def test_greedy_tokens_in_float32_are_those_of_the_reference(greedy: list[Compared]) -> None:
    wrong = {
        c.case.name: f"token {c.num_same} differs, where the gap is {c.case.gaps[c.num_same]:.5f}"
        for c in greedy
        if c.num_same < c.case.num_certain
    }
    assert not wrong


def test_logprobs_in_float32_are_those_of_the_reference(greedy: list[Compared]) -> None:
    worst = {c.case.name: max(c.logprob_errors, default=0.0) for c in greedy}
    assert {name: error for name, error in worst.items() if error > 1e-3} == {}


def test_prompt_logprobs_in_float32_sum_up_as_in_the_reference(greedy: list[Compared]) -> None:
    sums = {c.case.name: (c.prompt_logprob_sum, c.case.prompt_logprob_sum) for c in greedy}
    wrong = {
        name: (ours, ref)
        for name, (ours, ref) in sums.items()
        if ours != pytest.approx(ref, rel=1e-3)
    }
    assert not wrong


def test_texts_are_those_of_the_reference(greedy: list[Compared]) -> None:
    same_tokens = [c for c in greedy if c.num_same == NUM_TOKENS]
    ours = {c.case.name: c.output.choices[0].text for c in same_tokens}
    assert ours == {c.case.name: c.case.text for c in same_tokens}


def test_messages_and_texts_become_the_prompt_ids_of_the_reference(float32: LLM) -> None:
    params = SamplingParams(max_tokens=1)
    chats = [case for case in CASES if case.messages]
    plain = [case for case in CASES if not case.messages]
    outputs = float32.chat([case.messages for case in chats], params)
    outputs += float32.generate([case.prompt for case in plain], params)
    ids = {c.name: list(o.prompt_token_ids) for c, o in zip(chats + plain, outputs, strict=True)}
    assert ids == {case.name: case.prompt_ids for case in CASES}


@dataclass(frozen=True)
class Bound:
    """How far an arithmetic may be from the reference, and what it is asked for with."""

    options: dict[str, str]
    least_agreement: float
    largest_logprob_error: float


# Share of the reference's tokens that are our first choice, and mean distance of their logprobs.
BOUNDS = {
    "bfloat16": Bound({"dtype": "bfloat16"}, 0.985, 0.03),
    "int8 cache": Bound({"kv_cache_dtype": "int8"}, 0.98, 0.02),
    "int8": Bound({"quantization": "int8"}, 0.955, 0.06),
    "int8, int8 cache": Bound({"quantization": "int8", "kv_cache_dtype": "int8"}, 0.955, 0.06),
}


@pytest.mark.parametrize("arithmetic", BOUNDS)
def test_rounding_hardly_changes_what_the_reference_would_choose(
    default_model: str, arithmetic: str
) -> None:
    bound = BOUNDS[arithmetic]
    positions = teacher_forced(default_model, bound.options)
    agreement = sum(is_first for is_first, _ in positions) / len(positions)
    assert agreement >= bound.least_agreement
    error = sum(error for _, error in positions) / len(positions)
    assert error <= bound.largest_logprob_error


def teacher_forced(model: str, options: dict[str, str]) -> list[tuple[bool, float]]:
    """Per output token of the reference: is it our first choice; logprob error."""
    params = SamplingParams(max_tokens=0, prompt_logprobs=1)
    with LLM(model, num_kv_blocks=NUM_KV_BLOCKS, **options) as llm:
        outputs = llm.generate([case.prompt_ids + case.output_ids for case in CASES], params)
    positions = []
    for case, output in zip(CASES, outputs, strict=True):
        ours = (output.prompt_logprobs or ())[len(case.prompt_ids) :]
        for logprob, entry in zip(case.logprobs, ours, strict=True):
            if entry is None:
                raise AssertionError(f"{case.name}: a token of the output has no logprob")
            positions.append((entry.rank == 1, abs(logprob - entry.logprob)))
    return positions
