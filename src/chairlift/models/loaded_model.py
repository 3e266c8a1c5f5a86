"""What loading a model gives: the one record that the rest of the engine starts from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from chairlift.model_spec import ModelSpec, WeightTensor
from chairlift.models.stored_tensor import StoredTensor
from chairlift.tokenizer_source import TokenizerSource


class ModelFormat(StrEnum):
    """How a model lies on disk."""

    GGUF = "gguf"
    HUGGING_FACE = "huggingface"


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """What a model's files advise for generating; None where they say nothing.

    Attributes:
        eos_token_ids: Ids that end a text; may be empty.
    """

    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model whose description has been read and checked, and whose weights have not been read.

    Attributes:
        name: What users call it: the alias or id as given, or the file's or folder's own name.
        path: The GGUF file, or the folder in Hugging Face format.
        weights: All that ``expected_weights(spec)`` names, in that order. Their bytes are views
            of mapped files: reading them is what reads the disk, and dropping them unmaps it.
        files: The weight files, in a fixed order.
        size_bytes: Bytes of the weight files.
        quantization: Storage formats of the weights, the one with the most bytes first, e.g.
            ``Q4_1, Q8_0, F32``.
    """

    spec: ModelSpec
    name: str
    path: Path
    tokenizer_source: TokenizerSource
    weights: tuple[WeightTensor, ...]
    files: tuple[Path, ...]
    size_bytes: int
    format: ModelFormat
    quantization: str
    generation: GenerationDefaults


def describe_quantization(tensors: Iterable[StoredTensor]) -> str:
    """Name the storage formats of some tensors, the one with the most bytes first."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.tensor_type] = sizes.get(tensor.tensor_type, 0) + tensor.data.size
    return ", ".join(sorted(sizes, key=lambda name: -sizes[name]))
