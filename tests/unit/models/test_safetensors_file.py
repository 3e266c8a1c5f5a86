"""The safetensors container, against files that the safetensors package wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from chairlift.errors import ModelLoadError
from chairlift.model_spec import TensorType
from chairlift.models.safetensors_file import read_safetensors


def raw_file(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        read_safetensors(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "tensor_type"),
    [
        (torch.float32, TensorType.F32),
        (torch.float16, TensorType.F16),
        (torch.bfloat16, TensorType.BF16),
    ],
)
def test_tensors_have_the_bytes_and_shape_that_were_written(
    tmp_path: Path, dtype: torch.dtype, tensor_type: TensorType
) -> None:
    written = {"odd": torch.arange(3).to(dtype), "matrix": torch.randn(4, 6).to(dtype)}
    path = tmp_path / "m.safetensors"
    save_file(written, path, metadata={"format": "pt"})
    read = read_safetensors(path)
    assert read.keys() == written.keys()
    for name, tensor in written.items():
        assert read[name].tensor_type is tensor_type
        assert read[name].shape == tuple(tensor.shape)
        expected = tensor.contiguous().view(torch.uint8).numpy().reshape(-1)
        np.testing.assert_array_equal(read[name].data, expected)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"w": torch.ones(4, 6)}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert "download or copy it again" in refusal(path)


def entry(**changes: Any) -> dict[str, Any]:
    return {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} | changes}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{nonsense", "its header is not JSON"),
        (b"[" * 100_000, "its header is not JSON"),
        (b'{"w": ' + b"9" * 5000 + b"}", "its header is not JSON"),
        ([], "its header is not a JSON object"),
        ({"w": 3}, "the entry of tensor 'w' is not as it must be"),
        ({"w": {"dtype": "F32"}}, "the entry of tensor 'w' is not as it must be"),
        (entry(data_offsets=[0]), "the entry of tensor 'w' is not as it must be"),
        (entry(shape=[2, -3]), "tensor 'w' has a shape or place that is no natural number"),
        (entry(shape=[2.0, 3]), "tensor 'w' has a shape or place that is no natural number"),
        (entry(data_offsets=[-1, 23]), "tensor 'w' has a shape or place that is no natural"),
        (entry(shape=[1] * 9), "tensor 'w' has 9 dimensions"),
        (entry(dtype="I8"), "the unsupported type 'I8'; supported are F32, F16, BF16"),
        (entry(dtype=["F32"]), "the unsupported type ['F32']"),
        (entry(data_offsets=[8, 32]), "truncated: tensor 'w' ends at byte 32"),
        (entry(shape=[2, 4]), "tensor 'w' has 24 bytes for 8 weights"),
        (entry(data_offsets=[24, 0]), "tensor 'w' has -24 bytes for 6 weights"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, header: Any, message: str) -> None:
    assert message in refusal(raw_file(tmp_path / "m.safetensors", header, bytes(24)))


def test_a_header_longer_than_the_format_allows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    assert "its header would end at byte" in refusal(path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), max_size=6))
def test_no_damage_raises_anything_but_a_model_load_error(
    tmp_path: Path, changes: list[tuple[int, int]]
) -> None:
    path = raw_file(tmp_path / "m.safetensors", entry() | {"v": entry()["w"]}, bytes(24))
    data = bytearray(path.read_bytes())
    for position, value in changes:
        data[position % len(data)] = value
    path.write_bytes(data)
    try:
        tensors = read_safetensors(path)
    except ModelLoadError:
        return
    assert all(t.data.size <= 24 for t in tensors.values())
