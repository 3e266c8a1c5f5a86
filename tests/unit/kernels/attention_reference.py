"""A float64 reference of paged attention, and a driver that feeds sequences through the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chairlift import _native

Floats = npt.NDArray[np.float32]
Step = Sequence[tuple[int, int]]  # (sequence, new tokens) in batch order
# Rounding to nearest is off by at most 2 ** these, relatively; to 15 bits, relative to the largest.
LOG2_F32, LOG2_BF16, LOG2_WEIGHT = -24, -8, -16


@dataclass(frozen=True)
class Setting:
    """One attention layer and where it runs; an empty ``kv_dtype`` is the same as ``dtype``."""

    isa: str
    dtype: str = "float32"
    kv_dtype: str = ""
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    block_size: int = 16
    window: int = 0
    num_threads: int = 2
    attention_factor: float = 1.0
    norms: bool = False
    norm_eps: float = 1e-5

    @property
    def width(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim

    @property
    def stored(self) -> str:
        """Type of the values in the cache."""
        return self.kv_dtype or self.dtype

    @property
    def inv_freq(self) -> npt.NDArray[np.float64]:
        return 1e4 ** (-np.arange(0, self.head_dim, 2) / self.head_dim)

    @property
    def scale(self) -> float:
        return float(np.float32(self.head_dim**-0.5))

    def norm_weights(self, which: str) -> Floats | None:
        rng = np.random.default_rng(1 if which == "q" else 2)
        return rng.uniform(0.5, 1.5, self.head_dim).astype(np.float32) if self.norms else None


def make_qkv(setting: Setting, length: int, seed: int) -> Floats:
    """Projections of one sequence. [length, width] float32."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((length, setting.width)).astype(np.float32)


def round_bf16(x: Floats) -> Floats:
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def rounded(setting: Setting, x: Floats) -> Floats:
    return round_bf16(x) if setting.stored == "bfloat16" else x


def hadamard(heads: Floats) -> Floats:
    """Sylvester's transform in blocks as large as the padded head allows, sums in float32.

    [..., head_dim] -> [..., head_dim rounded up to 16].
    """
    dim = -(-heads.shape[-1] // 16) * 16
    out = np.zeros((*heads.shape[:-1], dim), np.float32)
    out[..., : heads.shape[-1]] = heads
    for stage in range((dim & -dim).bit_length() - 1):
        pairs = out.reshape(*heads.shape[:-1], -1, 2, 1 << stage)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        out = np.stack([a + b, a - b], axis=-2).reshape(out.shape)
    return out


def quantised(heads: Floats, *, rounds_scale: bool) -> Floats:
    """Heads as int8 with one scale each holds them; the scale a bfloat16, rounded up, if asked."""
    largest = np.abs(heads).max(axis=-1, keepdims=True)
    largest[largest == 0] = 1  # any scale holds zeros
    if rounds_scale:
        bits = (largest * np.float32(1 / 127)).view(np.uint32)
        scales = ((bits + 0xFFFF) & np.uint32(0xFFFF0000)).view(np.float32)
        wholes = np.rint(heads * (np.float32(1) / scales))
    else:
        scales = largest * np.float32(1 / 127)
        wholes = np.rint(heads * (np.float32(127) / largest))
    return np.clip(wholes, -127, 127) * scales


def quantised_rotated(heads: Floats, *, rounds_scale: bool) -> Floats:
    """The same for heads that are transformed before, and back again."""
    there = quantised(hadamard(heads), rounds_scale=rounds_scale)
    dim = there.shape[-1]
    return hadamard(there)[..., : heads.shape[-1]] / np.float32(dim & -dim)


def rotate(setting: Setting, heads: Floats, norm: Floats | None) -> Floats:
    """Norm and rotation of [length, heads, head_dim] float32, operation by operation as specified:
    so the values round to the same bfloat16 as the kernels' (the norm's sum aside)."""
    if norm is not None:
        mean = (heads.astype(np.float64) ** 2).mean(axis=-1, keepdims=True)
        inverse = (1 / np.sqrt(mean + setting.norm_eps)).astype(np.float32)
        heads = heads * inverse * norm
    angles = np.arange(len(heads))[:, None] * setting.inv_freq
    cos = (np.cos(angles) * setting.attention_factor).astype(np.float32)[:, None]
    sin = (np.sin(angles) * setting.attention_factor).astype(np.float32)[:, None]
    a, b = np.split(heads, 2, axis=-1)
    return rounded(setting, np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1))


def split_qkv(setting: Setting, qkv: Floats) -> tuple[Floats, Floats, Floats]:
    """q, k, v of one sequence as attention sees them, each [length, heads, head_dim]."""
    heads = qkv.reshape(len(qkv), -1, setting.head_dim)
    h, kv = setting.num_heads, setting.num_kv_heads
    q = rotate(setting, heads[:, :h], setting.norm_weights("q"))
    k = rotate(setting, heads[:, h : h + kv], setting.norm_weights("k"))
    v = rounded(setting, heads[:, h + kv :])
    if setting.stored == "int8":
        q = quantised_rotated(q, rounds_scale=False)
        k = quantised_rotated(k, rounds_scale=True)
        v = quantised(v, rounds_scale=True)
    return q, k, v


def reference(setting: Setting, qkv: Floats, first: int) -> npt.NDArray[np.float64]:
    """Attention of tokens [first, length). [length - first, num_heads * head_dim]."""
    q, k, v = (x.astype(np.float64) for x in split_qkv(setting, qkv))
    group = setting.num_heads // setting.num_kv_heads
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q[first:], k) * setting.scale
    query, key = np.arange(first, len(qkv))[:, None], np.arange(len(qkv))
    hidden = key > query
    if setting.window:
        hidden |= key <= query - setting.window
    scores[:, hidden] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v).reshape(len(qkv) - first, -1)


def tolerance(setting: Setting, qkv: Floats) -> float:
    """Largest error of an output element that rounding can explain.

    A score is a sum of head_dim products, scaled, and shifted by the maximum: its error makes a
    relative error of the weights. Weights are rounded for the second product, to bfloat16 or to 15
    bits of the largest, and it adds up to length terms; the sum of weights carries the same errors,
    hence the factor 2. The output is rounded once more.
    """
    q, k, v = (np.abs(x).astype(np.float64) for x in split_qkv(setting, qkv))
    largest = np.linalg.norm(q, axis=-1).max() * np.linalg.norm(k, axis=-1).max() * setting.scale
    score_error = largest * (setting.head_dim + 8) * 2.0**LOG2_F32
    weight_error = score_error + (len(qkv) + 8) * 2.0**LOG2_F32
    output_error = 2.0 ** (LOG2_BF16 if setting.dtype == "bfloat16" else LOG2_F32)
    if setting.stored == "bfloat16":
        weight_error += 2.0**LOG2_BF16
    if setting.stored == "int8":
        weight_error += len(qkv) * 2.0**LOG2_WEIGHT
    if setting.norms and setting.stored != "float32":
        # The kernels sum the squares in float32: an element of q or k may round to its neighbour.
        weight_error += largest * 2.0 ** (LOG2_BF16 + 1)
    return float((2 * weight_error + output_error) * v.max())


class Driver:
    """Feeds sequences through one attention layer, block by block as an engine would.

    Blocks are dealt out at random from `first_block` on; a few are left over.
    """

    def __init__(
        self,
        setting: Setting,
        sequences: Sequence[Floats],
        *,
        seed: int = 0,
        first_block: int = 0,
    ) -> None:
        self.setting, self.sequences = setting, sequences
        needed = [-(-len(s) // setting.block_size) for s in sequences]
        num_blocks = first_block + sum(needed) + 3
        self.team = _native.ThreadTeam(setting.num_threads)
        self.cache = _native.KvCache(
            num_layers=2,
            num_kv_heads=setting.num_kv_heads,
            head_dim=setting.head_dim,
            dtype=setting.stored,
            num_blocks=num_blocks,
            block_size=setting.block_size,
        )
        for block in range(first_block, num_blocks):
            self.cache.fill_block(block, 0xFF)  # NaN, or scales that are: stale memory
        self.layer = _native.AttentionLayer(
            isa=setting.isa,
            dtype=setting.dtype,
            team=self.team,
            cache=self.cache,
            num_heads=setting.num_heads,
            inv_freq=setting.inv_freq,
            attention_factor=setting.attention_factor,
            scale=setting.scale,
            sliding_window=setting.window,
            q_norm=setting.norm_weights("q"),
            k_norm=setting.norm_weights("k"),
            norm_eps=setting.norm_eps,
        )
        blocks = np.arange(first_block, num_blocks, dtype=np.int32)
        order = np.random.default_rng(seed).permutation(blocks)
        self.tables = np.full((len(sequences), max(needed)), -1, dtype=np.int32)
        for i, n in enumerate(needed):
            self.tables[i, :n], order = order[:n], order[n:]
        self.done = [0] * len(sequences)

    def slots(self, sequence: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        size = self.setting.block_size
        return self.tables[sequence, positions // size].astype(np.int64) * size + positions % size

    def step(self, batch: Step) -> list[Floats]:
        """Runs one batch; returns each entry's outputs [new tokens, num_heads * head_dim]."""
        counts = np.array([n for _, n in batch])
        starts = [self.done[s] for s, _ in batch]
        spans = [np.arange(b, b + n) for b, n in zip(starts, counts, strict=True)]
        indices = [s for s, _ in batch]
        out = self.layer.run(
            layer=1,
            qkv=np.concatenate([self.sequences[s][p] for s, p in zip(indices, spans, strict=True)]),
            positions=np.concatenate(spans).astype(np.int32),
            query_start_loc=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            seq_lens=np.array([p[-1] + 1 for p in spans], dtype=np.int32),
            block_tables=self.tables[indices],
            slot_mapping=np.concatenate(
                [self.slots(s, p) for s, p in zip(indices, spans, strict=True)]
            ),
        )
        for s, n in batch:
            self.done[s] += n
        return list(np.split(out, np.cumsum(counts)[:-1]))


def run_in_chunks(setting: Setting, qkv: Floats, chunk: int) -> Floats:
    """One sequence alone, `chunk` tokens a step. [length, num_heads * head_dim]."""
    driver = Driver(setting, [qkv])
    steps = [min(chunk, len(qkv) - i) for i in range(0, len(qkv), chunk)]
    return np.concatenate([driver.step([(0, n)])[0] for n in steps])
