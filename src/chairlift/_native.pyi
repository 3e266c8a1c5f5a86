import numpy as np
from numpy.typing import NDArray

# Core: csrc/bind_core.cpp

class ThreadTeam:
    def __init__(self, num_threads: int) -> None: ...
    @property
    def size(self) -> int: ...

def available_isas() -> list[str]: ...
def current_isa() -> str: ...

# Dequantisation: csrc/bind_dequant.cpp

def dequantize(tensor_type: str, data: NDArray[np.uint8], n: int) -> NDArray[np.float32]: ...

# Sampling: csrc/sampler_bindings.cpp

def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[int]: ...
def uniform_draw(seed: int, position: int, choice: int) -> float: ...

class SamplingSettings:
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
    NDArray[np.uint8],
    NDArray[np.int32],
    NDArray[np.float32],
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.float32],
]

class Sampler:
    def __init__(self, vocab_size: int, team: ThreadTeam) -> None: ...
    @property
    def vocab_size(self) -> int: ...
    def add(
        self,
        slot: int,
        settings: SamplingSettings,
        prompt_token_ids: NDArray[np.int32],
        output_token_ids: NDArray[np.int32],
    ) -> None: ...
    def remove(self, slot: int) -> None: ...
    def append(self, slot: int, token_id: int) -> None: ...
    def append_rows(self, slots: NDArray[np.int32], token_ids: NDArray[np.int32]) -> None: ...
    def sample(
        self,
        logits: NDArray[np.float32],
        slots: NDArray[np.int32],
        output_positions: NDArray[np.int32],
        allowed_bits: NDArray[np.uint32] | None = None,
    ) -> _SampleArrays: ...
    def score(
        self, logits: NDArray[np.float32], token_ids: NDArray[np.int32], num_top: int
    ) -> _SampleArrays: ...
