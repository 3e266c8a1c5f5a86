"""Rotation frequencies of rotary position embeddings, with the scalings that models ask for.

Source: Su et al. 2021, "RoFormer"; Chen et al. 2023, "Extending Context Window of LLMs via
Positional Interpolation" (linear); Peng et al. 2023, "YaRN" (yarn); the reference code that came
with Llama 3.1 (llama3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Float64Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DefaultRope:
    """No scaling."""


@dataclass(frozen=True, slots=True)
class LinearRope:
    """Every frequency divided by ``factor`` (> 0)."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Rope:
    """Low frequencies divided by ``factor``, high ones kept, a smooth passage between.

    Attributes:
        low_freq_factor: Wavelengths over ``original_context / low_freq_factor`` count as low.
        high_freq_factor: Those under ``original_context / high_freq_factor`` count as high;
            greater than ``low_freq_factor``.
        original_context: Tokens the model was pre-trained for.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class YarnRope:
    """Interpolation by parts, and a factor on cos and sin that sharpens attention.

    Attributes:
        attention_factor: None gives ``0.1 ln(factor) + 1``, or the ratio of the two ``mscale``
            when both are set.
        beta_fast: Pairs that turn more often than this over ``original_context`` are kept.
        beta_slow: Pairs that turn less often are divided by ``factor``.
        truncate: Round the two borders outwards to whole pairs.
    """

    factor: float
    original_context: int
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    truncate: bool = True


RopeScaling: TypeAlias = DefaultRope | LinearRope | Llama3Rope | YarnRope


def rope_frequencies(
    head_dim: int,
    theta: float,
    scaling: RopeScaling,
    divisors: npt.NDArray[np.float32] | None = None,
) -> tuple[tuple[float, ...], float]:
    """Compute a model's rotation per position, and the factor on cos and sin.

    Args:
        head_dim: Even.
        theta: Base of the geometric series, > 1.
        divisors: Divide the unscaled frequencies (GGUF's ``rope_freqs.weight``).
            [head_dim / 2] float32, or None.

    Returns:
        ``ModelSpec.rope_inv_freq`` in radians per position, and ``rope_attention_factor``.
    """
    inv_freq = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if divisors is not None:
        inv_freq /= divisors
    attention_factor = 1.0
    match scaling:
        case LinearRope():
            inv_freq /= scaling.factor
        case Llama3Rope():
            inv_freq = _scale_llama3(inv_freq, scaling)
        case YarnRope():
            inv_freq = _scale_yarn(inv_freq, head_dim, theta, scaling)
            attention_factor = yarn_attention_factor(scaling)
        case DefaultRope():
            pass
    return tuple(inv_freq.tolist()), attention_factor


def _scale_llama3(inv_freq: _Float64Array, scaling: Llama3Rope) -> _Float64Array:
    turns = scaling.original_context * inv_freq / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return inv_freq * (kept + (1.0 - kept) / scaling.factor)


def _scale_yarn(
    inv_freq: _Float64Array, head_dim: int, theta: float, scaling: YarnRope
) -> _Float64Array:
    def pair_turning(turns: float) -> float:
        """Index, not rounded, of the pair that turns so often over the original context."""
        ratio = scaling.original_context / (turns * 2 * math.pi)
        return head_dim * math.log(ratio) / (2 * math.log(theta))

    first, last = pair_turning(scaling.beta_fast), pair_turning(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0.0), min(last, head_dim - 1.0)
    if first == last:
        last += 0.001
    pairs = np.arange(head_dim // 2, dtype=np.float64)
    interpolated = np.clip((pairs - first) / (last - first), 0.0, 1.0)
    return inv_freq * (1.0 - interpolated + interpolated / scaling.factor)


def yarn_attention_factor(scaling: YarnRope) -> float:
    """The factor on cos and sin that a YaRN scaling gives or implies."""
    if scaling.attention_factor is not None:
        return scaling.attention_factor

    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(scaling.factor) + 1.0 if scaling.factor > 1.0 else 1.0

    if scaling.mscale and scaling.mscale_all_dim:
        return magnitude(scaling.mscale) / magnitude(scaling.mscale_all_dim)
    return magnitude(1.0)
