"""What a sampler has to do, said in the plainest way: float64, full sorts, loops over tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chairlift.kernels.sampling import ThreadTeam
from chairlift.runner.sampler import SampledTokens, Sampler, uniform_draw
from chairlift.sampling_params import SamplingParams

# float32 exponentials and their sums are good to about 2e-7; draws nearer than this to the border
# between two tokens may go either way.
TOLERANCE = 1e-6


def change_logits(
    logits: NDArray[np.float32],
    params: SamplingParams,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    eos_token_ids: Sequence[int] = (),
) -> NDArray[np.float64]:
    """Mask, bias and penalise one row, token by token."""
    changed = [float(x) for x in logits]
    ends = set(params.stop_token_ids) | (set() if params.ignore_eos else set(eos_token_ids))
    if len(output) < params.min_tokens:
        for token in ends:
            changed[token] = -math.inf
    for token, bias in (params.logit_bias or {}).items():
        changed[token] += bias
    for token in set(prompt) | set(output):
        if changed[token] > 0:
            changed[token] /= params.repetition_penalty
        else:
            changed[token] *= params.repetition_penalty
    for token, count in Counter(output).items():
        changed[token] -= params.frequency_penalty * count + params.presence_penalty
    return np.array(changed)


def kept_tokens(logits: NDArray[np.float64], params: SamplingParams, top_p: float) -> list[int]:
    """Return the ids that min_p, then top_k, then top_p keep, likeliest first."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    weights = np.exp((logits - logits.max()) / params.temperature)
    kept = [token for token in order if weights[token] >= params.min_p]
    if params.top_k > 0:
        kept = kept[: params.top_k]
    if top_p < 1.0:
        running = np.cumsum(weights[kept])
        kept = kept[: int(np.searchsorted(running, top_p * running[-1])) + 1]
    return kept


def acceptable_tokens(
    logits: NDArray[np.float64], params: SamplingParams, draws: Sequence[float]
) -> list[set[int]]:
    """Return for each draw the ids it may mean: nearly always exactly one."""
    acceptable: list[set[int]] = [set() for _ in draws]
    for top_p in {params.top_p * (1 - TOLERANCE), min(params.top_p * (1 + TOLERANCE), 1.0)}:
        top_p = 1.0 if params.top_p == 1.0 else top_p
        kept = np.array(sorted(kept_tokens(logits, params, top_p)))
        weights = np.exp((logits[kept] - logits.max()) / params.temperature)
        kept, weights = kept[weights > 0], weights[weights > 0]
        ends = np.cumsum(weights) / weights.sum()
        for tokens, draw in zip(acceptable, draws, strict=True):
            first = int(np.searchsorted(ends, draw - TOLERANCE, side="right"))
            last = int(np.searchsorted(ends, draw + TOLERANCE, side="right"))
            tokens.update(kept[first : last + 1].tolist())
    return acceptable


def sample_positions(
    logits: NDArray[np.float32],
    params: SamplingParams,
    num_positions: int,
    *,
    num_threads: int = 1,
    choice_index: int = 0,
) -> SampledTokens:
    """Sample the same row at output positions 0, 1, 2, ... of one request."""
    sampler = Sampler(len(logits), ThreadTeam(num_threads))
    sampler.add(0, params, [0], choice_index=choice_index)
    return sampler.sample(
        np.tile(logits, (num_positions, 1)),
        np.zeros(num_positions, np.int32),
        np.arange(num_positions, dtype=np.int32),
    )


def assert_follows_reference(
    logits: NDArray[np.float32], params: SamplingParams, num_positions: int = 200
) -> None:
    """Compare the tokens of many draws with the reference's, one by one."""
    assert params.seed is not None
    tokens = sample_positions(logits, params, num_positions).token_ids.tolist()
    draws = [uniform_draw(params.seed, position, 0) for position in range(num_positions)]
    acceptable = acceptable_tokens(logits.astype(np.float64), params, draws)
    wrong = [
        (position, token, allowed)
        for position, (token, allowed) in enumerate(zip(tokens, acceptable, strict=True))
        if token not in allowed
    ]
    assert wrong == []


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the logarithms of the probabilities of each row, in float64."""
    wide = logits.astype(np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return result
