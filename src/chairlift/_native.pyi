"""Types of the C++ extension. Each part's functions stand under its name, in the order bound."""

from collections.abc import Mapping, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

# core_bindings.cpp

def available_isas() -> list[str]: ...
def current_isa() -> str: ...

class ThreadTeam:
    def __init__(self, num_threads: int) -> None: ...
    @property
    def size(self) -> int: ...
    def barrier_ns(self) -> float: ...
    def read_rate(self, num_bytes: int) -> float: ...
    def peak_rate(self, weights: str) -> float: ...
    def gemm_rate(
        self, weights: str, num_rows: int, in_features: int, out_features: int, repeats: int
    ) -> float: ...
    def deal_out(self, count: int, num_phases: int) -> list[int]: ...

class SharedWork:
    def __init__(self, num_members: int) -> None: ...
    def begin(self, tid: int, count: int) -> None: ...
    def take(self, tid: int) -> int: ...
    def likely_next(self, tid: int) -> int: ...

# linear_bindings.cpp

class Linear:
    @overload
    def __init__(
        self, weights: npt.NDArray[np.float32], dtype: str, gate_up: bool, num_threads: int
    ) -> None: ...
    @overload
    def __init__(
        self,
        rows: npt.NDArray[np.uint8],
        tensor_type: str,
        in_features: int,
        gate_up: bool,
        num_threads: int,
    ) -> None: ...
    def unpack(self, feature: int, out: npt.NDArray[np.float32]) -> None: ...
    def apply(
        self,
        x: npt.NDArray[np.float32],
        epilogue: str,
        bias: npt.NDArray[np.float32] | None,
        out: npt.NDArray[np.float32],
    ) -> None: ...

def quantise_rows(
    x: npt.NDArray[np.float32],
    out: npt.NDArray[np.int8],
    scales: npt.NDArray[np.float32],
) -> None: ...
def rms_norm(
    x: npt.NDArray[np.float32],
    weight: npt.NDArray[np.float32],
    eps: float,
    dtype: str,
    out: npt.NDArray[np.float32],
) -> None: ...

# model_bindings.cpp

def checksum(data: npt.NDArray[np.uint8]) -> int: ...
def read_parts(
    descriptor: int,
    parts: Sequence[npt.NDArray[np.uint8]],
    chunk_bytes: int,
    checksums: Sequence[int],
    team: ThreadTeam,
) -> str: ...

class ModelShape:
    def __init__(
        self,
        *,
        vocab_size: int,
        hidden_size: int,
        intermediate_size: int,
        num_layers: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rms_norm_eps: float,
        rope_inv_freq: Sequence[float],
        rope_attention_factor: float,
        sliding_windows: Sequence[int],
        attention_bias: bool,
        attention_output_bias: bool,
        qk_norm: bool,
        tie_word_embeddings: bool,
    ) -> None: ...

class Model:
    def __init__(
        self,
        shape: ModelShape,
        dtype: str,
        quantization: str,
        kv_cache_dtype: str,
        num_threads: int,
        max_num_batched_tokens: int,
        kept_types: Mapping[str, str],
    ) -> None: ...
    def set_weight(
        self,
        name: str,
        tensor_type: str,
        shape: Sequence[int],
        data: npt.NDArray[np.uint8],
        interleaved_heads: int,
    ) -> None: ...
    def weight_parts(self) -> list[npt.NDArray[np.uint8]]: ...
    def allocate_kv(self, num_blocks: int, block_size: int) -> None: ...
    def allocate_swap(self, num_blocks: int, path: str) -> None: ...
    def swap_out(self, blocks: npt.NDArray[np.int32], slots: npt.NDArray[np.int32]) -> None: ...
    def swap_in(self, slots: npt.NDArray[np.int32], blocks: npt.NDArray[np.int32]) -> None: ...
    def kv_bytes_per_block(self, block_size: int) -> int: ...
    def forward(
        self,
        token_ids: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        query_start_loc: npt.NDArray[np.int32],
        seq_lens: npt.NDArray[np.int32],
        block_tables: npt.NDArray[np.int32],
        slot_mapping: npt.NDArray[np.int64],
    ) -> None: ...
    def compute_logits(self, rows: npt.NDArray[np.int32], out: npt.NDArray[np.float32]) -> None: ...
    def timers(self) -> dict[str, int]: ...
    def reset_timers(self) -> None: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def buffer_bytes(self) -> int: ...
    @property
    def team(self) -> ThreadTeam: ...
    @property
    def num_threads(self) -> int: ...
    @property
    def isa(self) -> str: ...

# attention_bindings.cpp

class KvCache:
    """The paged cache of all layers; its memory is zero until written."""

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: str,
        num_blocks: int,
        block_size: int,
    ) -> None: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def bytes_per_block(self) -> int: ...
    def fill_block(self, block: int, byte: int) -> None: ...
    def read_keys(self, layer: int, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]: ...
    def read_values(self, layer: int, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]: ...

class AttentionLayer:
    """Attention alone, over a cache of one's own; ``run`` returns [T, num_heads * head_dim]."""

    def __init__(
        self,
        *,
        isa: str,
        dtype: str,
        team: ThreadTeam,
        cache: KvCache,
        num_heads: int,
        inv_freq: npt.NDArray[np.float64],
        attention_factor: float = 1.0,
        scale: float,
        sliding_window: int = 0,
        q_norm: npt.NDArray[np.float32] | None = None,
        k_norm: npt.NDArray[np.float32] | None = None,
        norm_eps: float = 1e-6,
    ) -> None: ...
    def run(
        self,
        layer: int,
        qkv: npt.NDArray[np.float32],
        positions: npt.NDArray[np.int32],
        query_start_loc: npt.NDArray[np.int32],
        seq_lens: npt.NDArray[np.int32],
        block_tables: npt.NDArray[np.int32],
        slot_mapping: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.float32]: ...

# bind_dequant.cpp

def dequantize(
    tensor_type: str, data: npt.NDArray[np.uint8], n: int
) -> npt.NDArray[np.float32]: ...

# bind_strings.cpp

def read_strings(data: npt.NDArray[np.uint8], start: int, count: int) -> tuple[list[str], int]: ...

# sampler_bindings.cpp

def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[int]: ...
def uniform_draw(seed: int, position: int, choice: int) -> float: ...

class SamplingSettings:
    """One request's settings; ``num_logprobs`` -1 reports nothing, ``top_k`` 0 keeps all."""

    def __init__(self) -> None: ...
    greedy: bool
    seed: int
    choice: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    min_tokens: int
    num_logprobs: int
    logit_bias: list[tuple[int, float]]
    end_token_ids: list[int]

# statuses, token_ids, logprobs, ranks, top_ids, top_logprobs
_SampleArrays = tuple[
    npt.NDArray[np.uint8],
    npt.NDArray[np.int32],
    npt.NDArray[np.float32],
    npt.NDArray[np.int32],
    npt.NDArray[np.int32],
    npt.NDArray[np.float32],
]

class Sampler:
    def __init__(self, vocab_size: int, team: ThreadTeam) -> None: ...
    @property
    def vocab_size(self) -> int: ...
    def add(
        self,
        slot: int,
        settings: SamplingSettings,
        prompt_token_ids: npt.NDArray[np.int32],
        output_token_ids: npt.NDArray[np.int32],
    ) -> None: ...
    def remove(self, slot: int) -> None: ...
    def append(self, slot: int, token_id: int) -> None: ...
    def append_rows(
        self, slots: npt.NDArray[np.int32], token_ids: npt.NDArray[np.int32]
    ) -> None: ...
    def sample(
        self,
        logits: npt.NDArray[np.float32],
        slots: npt.NDArray[np.int32],
        output_positions: npt.NDArray[np.int32],
        allowed_bits: npt.NDArray[np.uint32] | None = None,
    ) -> _SampleArrays: ...
    def score(
        self, logits: npt.NDArray[np.float32], token_ids: npt.NDArray[np.int32], num_top: int
    ) -> _SampleArrays: ...
