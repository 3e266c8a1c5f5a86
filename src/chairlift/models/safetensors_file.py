"""Read the header of a safetensors file and give views of its mapped tensors.

The safetensors package hands out numpy arrays, and numpy has no bfloat16; the format is an 8-byte
length, a JSON header and the raw tensors, so it is read directly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from chairlift.errors import ModelLoadError
from chairlift.model_spec import TensorType
from chairlift.models.stored_tensor import StoredTensor, map_file, stored_bytes

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the format's own bound
_MAX_DIMENSIONS = 8
_TYPES: Mapping[str, TensorType] = {t.value: t for t in (TensorType.F32, TensorType.F16)} | {
    "BF16": TensorType.BF16
}


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Read the directory of a safetensors file.

    Returns:
        Its tensors by name; their bytes are views of the mapped file.

    Raises:
        ModelLoadError: The file is missing, truncated or not safetensors, or holds tensors outside
            of itself or of a type that is not supported. No weight has been read.
    """
    buffer = map_file(path)
    size = len(buffer)
    header_bytes = int.from_bytes(buffer[:_LENGTH_BYTES], "little")
    start = _LENGTH_BYTES + header_bytes
    if size < _LENGTH_BYTES or header_bytes > _MAX_HEADER_BYTES or start > size:
        raise _broken(path, f"its header would end at byte {start}, the file has {size} bytes")
    try:
        header = json.loads(buffer[_LENGTH_BYTES:start])
    except (ValueError, RecursionError):
        raise _broken(path, "its header is not JSON") from None
    if not isinstance(header, dict):
        raise _broken(path, "its header is not a JSON object")
    data = np.frombuffer(buffer, dtype=np.uint8)[start:]
    return {
        name: _read_entry(path, name, entry, data)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _read_entry(path: Path, name: str, entry: Any, data: np.ndarray[Any, Any]) -> StoredTensor:
    try:
        kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise _broken(path, f"the entry of tensor {name!r} is not as it must be") from None
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise _broken(path, f"tensor {name!r} has a shape or place that is no natural number")
    if len(shape) > _MAX_DIMENSIONS:
        raise _broken(path, f"tensor {name!r} has {len(shape)} dimensions")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ModelLoadError(
            f"tensor {name!r} of {path} has the unsupported type {kind!r}; supported are "
            f"{', '.join(_TYPES)}: choose a checkpoint that is not quantised"
        )
    tensor_type = _TYPES[kind]
    if end > data.size:
        raise _broken(
            path,
            f"truncated: tensor {name!r} ends at byte {end} of the data, which has {data.size}",
        )
    if end - begin != stored_bytes(tensor_type, shape):
        raise _broken(path, f"tensor {name!r} has {end - begin} bytes for {prod(shape)} weights")
    return StoredTensor(name, tensor_type, shape, data[begin:end])


def _broken(path: Path, what: str) -> ModelLoadError:
    return ModelLoadError(f"{path} is broken ({what}): download or copy it again")
