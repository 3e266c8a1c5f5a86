"""Weights as they lie in a mapped file, and the checks that every format shares."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from chairlift.errors import ModelLoadError
from chairlift.model_spec import ModelSpec, TensorType, expected_weights

# Weights per block and bytes per block of each format; the layout itself is csrc/dequant.cpp's.
_BLOCKS: Mapping[TensorType, tuple[int, int]] = {
    TensorType.F32: (1, 4),
    TensorType.F16: (1, 2),
    TensorType.BF16: (1, 2),
    TensorType.Q4_0: (32, 18),
    TensorType.Q4_1: (32, 20),
    TensorType.Q5_0: (32, 22),
    TensorType.Q5_1: (32, 24),
    TensorType.Q8_0: (32, 34),
    TensorType.Q4_K: (256, 144),
    TensorType.Q5_K: (256, 176),
    TensorType.Q6_K: (256, 210),
}


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """One tensor of a file, under the file's own name.

    Attributes:
        shape: Row-major: (out_features, in_features) of a matrix.
        data: View of the mapped file; reading it is what brings it into memory. [n] uint8.
    """

    name: str
    tensor_type: TensorType
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]


def map_file(path: Path) -> mmap.mmap:
    """Map a file read-only. The mapping lives as long as any view of it.

    Raises:
        ModelLoadError: The file cannot be opened, or is empty.
    """
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise ModelLoadError(f"{path} is empty: download or copy it again") from None
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror or error}") from None


def stored_bytes(tensor_type: TensorType, shape: tuple[int, ...]) -> int | None:
    """Size in bytes of a tensor; None when its rows are not whole blocks of its type."""
    block_length, block_bytes = _BLOCKS[tensor_type]
    row_length = shape[-1] if shape else 1
    if row_length % block_length:
        return None
    return prod(shape) // block_length * block_bytes


def match_weights(
    spec: ModelSpec,
    stored: Mapping[str, StoredTensor],
    *,
    path: Path,
    name_in_file: Callable[[str], str],
    may_be_left: Callable[[str], bool],
) -> Iterator[tuple[str, StoredTensor]]:
    """Pair each weight the model needs with its tensor in the file, in loading order.

    Args:
        stored: The file's tensors by their own names.
        path: The file or folder, for messages.
        name_in_file: Canonical name (see ``WeightTensor``) to the file's.
        may_be_left: Whether a tensor that no weight needs may be passed over.

    Raises:
        ModelLoadError: A tensor is missing, has another shape than the model's sizes ask for, or
            nothing uses it, which means that the model is of another kind than it says.
    """
    used = set()
    for name, shape in expected_weights(spec):
        file_name = name_in_file(name)
        tensor = stored.get(file_name)
        if tensor is None:
            raise ModelLoadError(
                f"{path} lacks the tensor {file_name!r}, which a {spec.architecture} model of "
                f"{spec.num_layers} layers needs: the file is incomplete, download it again"
            )
        if tensor.shape != shape:
            raise ModelLoadError(
                f"tensor {file_name!r} of {path} has shape {tensor.shape}, but the model's "
                f"sizes ask for {shape}: its metadata and weights do not belong together"
            )
        used.add(file_name)
        yield name, tensor
    left = sorted(name for name in stored if name not in used and not may_be_left(name))
    if left:
        raise ModelLoadError(
            f"{path} holds tensors that a {spec.architecture} model does not use, such as "
            f"{left[0]!r} ({len(left)} in all): this variant of the architecture is not supported"
        )
