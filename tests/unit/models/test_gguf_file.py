"""The GGUF container: what the gguf package wrote is read, and what is broken is named."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.models.gguf_builder import tiny_metadata, tiny_tensors, write_gguf

from chairlift.errors import ModelLoadError
from chairlift.model_spec import TensorType
from chairlift.models.gguf_file import read_gguf

HEADER = struct.Struct("<4sIQQ")


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def entry(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    dimensions = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return string(name) + dimensions + struct.pack("<IQ", kind, offset)


def raw_file(
    path: Path, *, keys: Sequence[bytes] = (), entries: Sequence[bytes] = (), data: bytes = b""
) -> Path:
    head = HEADER.pack(b"GGUF", 3, len(entries), len(keys)) + b"".join([*keys, *entries])
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


def refusal(path: Path) -> str:
    """The message with which a file is refused; one line, and it names the file."""
    with pytest.raises(ModelLoadError) as caught:
        read_gguf(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_every_value_type_is_read_as_it_was_written(tmp_path: Path) -> None:
    kinds = gguf.GGUFValueType
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "u8": (kinds.UINT8, 255),
        "i8": (kinds.INT8, -128),
        "u16": (kinds.UINT16, 65535),
        "i16": (kinds.INT16, -32768),
        "u32": (kinds.UINT32, 2**32 - 1),
        "i32": (kinds.INT32, -(2**31)),
        "u64": (kinds.UINT64, 2**64 - 1),
        "i64": (kinds.INT64, -(2**63)),
        "f32": (kinds.FLOAT32, 0.5),
        "f64": (kinds.FLOAT64, 0.1),
        "yes": True,
        "no": False,
        "text": "Straße 🚡",
        "texts": ["", "a", "ü"],
        "integers": [1, -2, 3],
        "floats": [0.5, -1.5],
        "flags": [True, False],
    }
    read = read_gguf(write_gguf(tmp_path / "m.gguf", metadata, {})).metadata
    for key, value in metadata.items():
        expected = value[1] if isinstance(value, tuple) else value
        found = read[key].tolist() if isinstance(read[key], np.ndarray) else read[key]
        assert found == expected, key
        assert type(found) is type(expected), key


def test_nested_arrays_become_nested_lists(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", 8, 2) + string("a") + string("b")
    value = struct.pack("<IIQ", 9, 9, 2) + inner + struct.pack("<IQ", 8, 0)
    path = raw_file(tmp_path / "m.gguf", keys=[string("nested") + value])
    assert read_gguf(path).metadata["nested"] == [["a", "b"], []]


def test_arrays_nested_too_deep_are_refused(tmp_path: Path) -> None:
    value = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 1000 + struct.pack("<IQ", 8, 0)
    path = raw_file(tmp_path / "m.gguf", keys=[string("nested") + value])
    assert "nests arrays more than 4 deep" in refusal(path)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_tensors_have_the_bytes_and_shape_that_were_written(tmp_path: Path, kind: str) -> None:
    matrix = np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)
    path = write_gguf(
        tmp_path / "m.gguf",
        tensors={"odd": np.ones(3, np.float32), "w": matrix},
        quantized={"w": kind},
    )
    tensor = read_gguf(path).tensors["w"]
    assert tensor.tensor_type is TensorType[kind]
    assert tensor.shape == (3, 64)
    expected = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType[kind])
    np.testing.assert_array_equal(tensor.data, expected.view(np.uint8).reshape(-1))


def test_a_file_s_own_alignment_holds(tmp_path: Path) -> None:
    metadata = tiny_metadata(general__alignment=256)
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, arch="llama")
    writer.add_custom_alignment(metadata["general.alignment"])
    first, second = np.full(5, 1, np.float32), np.full(7, 2, np.float32)
    writer.add_tensor("first", first)
    writer.add_tensor("second", second)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors = read_gguf(path).tensors
    np.testing.assert_array_equal(tensors["first"].data.view(np.float32), first)
    np.testing.assert_array_equal(tensors["second"].data.view(np.float32), second)


def test_version_2_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(HEADER.pack(b"GGUF", 2, 0, 1) + string("k") + struct.pack("<II", 4, 7))
    assert read_gguf(path).metadata == {"k": 7}


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    tensors = {"w": np.ones((4, 8), np.float32)}  # 128 bytes: no padding follows the last one
    metadata = {"general.architecture": "llama", "texts": ["ab", "c"], "numbers": [1, 2]}
    whole = write_gguf(tmp_path / "whole.gguf", metadata, tensors).read_bytes()
    path = tmp_path / "part.gguf"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        message = refusal(path)
        assert "download or copy it again" in message or "not a GGUF file" in message


def test_a_file_cut_inside_the_weights_says_where(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "m.gguf", tensors={"w": np.ones((4, 8), np.float32)})
    size = whole.stat().st_size
    whole.write_bytes(whole.read_bytes()[:-1])
    assert f"tensor 'w' ends at byte {size}, the file has {size - 1} bytes" in refusal(whole)


def test_a_missing_file_and_an_empty_one_are_named(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.gguf")
    (tmp_path / "empty.gguf").touch()
    assert "is empty" in refusal(tmp_path / "empty.gguf")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    assert "cannot read" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"PK\x03\x04" + bytes(40), "does not begin with 'GGUF'"),
        (HEADER.pack(b"GGUF", 1, 0, 0), "has GGUF version 1; supported are 2 and 3"),
        (HEADER.pack(b"GGUF", 99, 0, 0), "has GGUF version 99"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "big-endian GGUF file"),
        (HEADER.pack(b"GGUF", 3, 0, 2**60), "truncated inside the metadata"),
        (HEADER.pack(b"GGUF", 3, 2**60, 0), "truncated inside the tensor directory"),
    ],
)
def test_headers_that_cannot_be_are_refused(tmp_path: Path, head: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(head)
    assert message in refusal(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (struct.pack("<I", 13), "unknown value type 13"),
        (struct.pack("<IIQ", 9, 13, 1), "elements of the unknown type 13"),
        (struct.pack("<IIQ", 9, 8, 2**61) + bytes(16), "truncated inside metadata 'k'"),
        (struct.pack("<IIQ", 9, 4, 2**61) + bytes(16), "truncated inside metadata 'k'"),
        (struct.pack("<IIQ", 9, 9, 2**61) + bytes(16), "truncated inside metadata 'k'"),
        (struct.pack("<IQ", 8, 2**63) + bytes(16), "truncated inside metadata 'k'"),
        (struct.pack("<I", 8) + string(b"\xff\xfe"), "metadata 'k' is not UTF-8"),
        (struct.pack("<IIQ", 9, 8, 1) + string(b"\xc3"), "holds text that is not UTF-8"),
    ],
)
def test_metadata_that_cannot_be_is_refused(tmp_path: Path, value: bytes, message: str) -> None:
    assert message in refusal(raw_file(tmp_path / "m.gguf", keys=[string("k") + value]))


def test_a_key_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    key = string("k") + struct.pack("<II", 4, 1)
    assert "'k' occurs twice" in refusal(raw_file(tmp_path / "m.gguf", keys=[key, key]))


@pytest.mark.parametrize("alignment", [(4, 0), (4, 3), (5, -8)])
def test_an_alignment_that_is_no_power_of_two_is_refused(
    tmp_path: Path, alignment: tuple[int, int]
) -> None:
    kind, value = alignment
    key = string("general.alignment") + struct.pack("<Ii", kind, value)
    assert "must be a power of two" in refusal(raw_file(tmp_path / "m.gguf", keys=[key]))


def test_one_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    key = string("split.count") + struct.pack("<IH", 2, 3)
    assert "split over 3 files" in refusal(raw_file(tmp_path / "m.gguf", keys=[key]))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (entry("w", (8, 4), 10, 0), "unsupported type Q2_K; supported are F32, F16, BF16, Q4_0"),
        (entry("w", (8, 4), 77, 0), "unsupported type 77"),
        (entry("w", (8, 4), 0, 1), "not aligned to 32 bytes"),
        (entry("w", (8, 4), 0, 2**40), "the file has"),
        (entry("w", (2**62, 2**62), 0, 0), "the file has"),
        (entry("w", (8, 1, 1, 1, 1), 0, 0), "has 5 dimensions"),
        (entry("w", (8, 4), 2, 0), "rows of 8 weights, not whole blocks of Q4_0"),
    ],
)
def test_tensors_that_cannot_be_are_refused(tmp_path: Path, bad: bytes, message: str) -> None:
    path = raw_file(tmp_path / "m.gguf", entries=[bad], data=bytes(128))
    text = refusal(path)
    assert message in text
    assert "'w'" in text


def test_a_tensor_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    twice = [entry("w", (8,), 0, 0)] * 2
    path = raw_file(tmp_path / "m.gguf", entries=twice, data=bytes(128))
    assert "tensor 'w' occurs twice" in refusal(path)


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("fuzz") / "m.gguf"
    tensors = {"w": np.ones((2, 32), np.float32), "v": np.ones(4, np.float32)}
    metadata = {"general.architecture": "llama", "s": ["ab", "c"], "n": [1, 2], "f": 0.5}
    return path, write_gguf(path, metadata, tensors).read_bytes()


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=8),
    length=st.integers(0, 10**6),
)
def test_no_damage_raises_anything_but_a_model_load_error(
    small_file: tuple[Path, bytes], changes: list[tuple[int, int]], length: int
) -> None:
    path, whole = small_file
    data = bytearray(whole)
    for position, value in changes:
        data[position % len(data)] = value
    path.write_bytes(data[: length % (len(data) + 1)] if length % 2 else data)
    try:
        file = read_gguf(path)
    except ModelLoadError as error:
        assert "\n" not in str(error)
    else:
        for tensor in file.tensors.values():
            assert tensor.data.base is not None  # inside the file


def test_a_large_vocabulary_is_read_in_a_fraction_of_a_second(tmp_path: Path) -> None:
    """Not a benchmark: it fails when reading becomes an order of magnitude slower than it is."""
    texts = [f"token{i}" for i in range(128_000)]
    metadata = {"general.architecture": "llama", "tokens": texts, "merges": texts}
    path = write_gguf(tmp_path / "m.gguf", metadata, tiny_tensors())
    start = time.process_time()
    assert read_gguf(path).metadata["tokens"] == texts
    assert time.process_time() - start < 1.5
