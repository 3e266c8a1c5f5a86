"""Packed weights on disk: the same model from them, and no harm from whatever happens to them."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.kernels.model_cases import (
    SPECS,
    Chunk,
    all_logits,
    make_batch,
    make_model,
    make_weights,
)

from chairlift.kernels.cpu_model import CpuDtype, CpuModel
from chairlift.kernels.isa import available_isas
from chairlift.kernels.part_files import checksum
from chairlift.model_spec import ModelSpec
from chairlift.models.loaded_model import LoadedModel
from chairlift.models.loader import load_model
from chairlift.runner import weight_cache as module
from chairlift.runner.weight_cache import Saving, WeightCache, weight_cache, weight_key

SPEC = SPECS["head_dim 64, all biases"]
BATCH = make_batch([Chunk(list(range(40)), 0, 40, [4, 7, 1])])


@pytest.fixture
def cache(tmp_path: Path) -> WeightCache:
    return WeightCache(tmp_path / "weights", 1 << 30)


def empty_model(spec: ModelSpec = SPEC, dtype: CpuDtype = "bfloat16") -> CpuModel:
    return CpuModel(spec, dtype=dtype, num_threads=2, max_num_batched_tokens=256)


def logits_of(model: CpuModel) -> bytes:
    model.allocate_kv(64, 16)
    return all_logits(model, BATCH, 97).tobytes()


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SPECS)
def test_a_model_from_the_cache_computes_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, cache: WeightCache, isa: str, dtype: CpuDtype, name: str
) -> None:
    monkeypatch.setenv("CHAIRLIFT_ISA", isa)
    spec = SPECS[name]
    saved = make_model(spec, dtype)
    assert cache.save("key", saved)
    restored = empty_model(spec, dtype)
    assert cache.load("key", restored)
    restored.allocate_kv(64, 16)
    found = all_logits(restored, BATCH, spec.vocab_size)
    assert found.tobytes() == all_logits(saved, BATCH, spec.vocab_size).tobytes()


def damages(size: int) -> dict[str, tuple[int, bytes | None]]:
    """Where to write what into a file of this size; None: cut it off there."""
    return {
        "empty": (0, None),
        "half of it": (size // 2, None),
        "without its last byte": (size - 1, None),
        "longer": (size, b"more"),
        "another first byte": (0, b"\x81"),
        "another byte in the middle": (size // 3, b"\x81"),
        "another key": (size - 14, b"\x7f"),
        "no JSON": (size - 17, b"\x00"),
    }


@pytest.mark.parametrize("name", damages(0))
def test_a_damaged_file_is_dropped_and_the_model_loads_from_its_source(
    cache: WeightCache, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    saved = make_model(SPEC, "bfloat16")
    cache.save("key", saved)
    (path,) = cache.folder.glob("*.weights")
    place, data = damages(path.stat().st_size)[name]
    if data is None:
        os.truncate(path, place)
    else:
        with path.open("r+b") as file:
            file.seek(place)
            file.write(data)
    model = empty_model()
    assert not cache.load("key", model)
    assert not path.exists()
    assert "is not used" in caplog.text
    for tensor in make_weights(SPEC):
        model.set_weight(tensor)
    assert logits_of(model) == logits_of(saved)


@pytest.mark.parametrize("change", [{"num_layers": 1, "sliding_windows": (0,)}, {"vocab_size": 96}])
def test_a_file_of_another_model_is_not_used(cache: WeightCache, change: dict[str, object]) -> None:
    cache.save("key", make_model(SPEC, "bfloat16"))
    assert not cache.load("key", empty_model(replace(SPEC, **change)))  # type: ignore[arg-type]


def test_a_file_is_known_by_the_key_inside_it(cache: WeightCache) -> None:
    cache.save("key", make_model(SPEC, "bfloat16"))
    (cache.folder / "key.weights").rename(cache.folder / "other.weights")
    assert not cache.load("other", empty_model())


def test_what_cannot_be_kept_costs_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    cache = WeightCache(tmp_path / "file" / "weights", 1 << 30)
    assert not cache.save("key", make_model(SPEC, "bfloat16"))
    assert "packed weights are not kept" in caplog.text


def test_what_is_saved_beside_the_work_is_there_when_it_is_finished(cache: WeightCache) -> None:
    saving = Saving(cache, "key", make_model(SPEC, "bfloat16"))
    saving.finish()
    assert cache.holds("key")
    assert cache.load("key", empty_model())


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_full_half_way_leaves_nothing_behind(
    cache: WeightCache, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model(SPEC, "float32")
    with largest_file(50_000), caplog.at_level(logging.WARNING):
        assert not cache.save("key", model)
    assert "packed weights are not kept" in caplog.text
    assert [path.name for path in cache.folder.iterdir()] == [".lock"]


def test_what_an_ended_writer_left_is_cleared_away(cache: WeightCache) -> None:
    cache.folder.mkdir()
    (cache.folder / "old.tmp").write_bytes(b"half")
    cache.save("key", make_model(SPEC, "bfloat16"))
    assert sorted(path.name for path in cache.folder.iterdir()) == [".lock", "key.weights"]


def test_the_longest_unused_file_makes_room(cache: WeightCache) -> None:
    model = make_model(SPEC, "bfloat16")
    for age_s, key in ((30, "first"), (20, "second"), (10, "third")):
        cache.save(key, model)
        path = cache.folder / f"{key}.weights"
        then_s = path.stat().st_mtime - age_s
        os.utime(path, (then_s, then_s))
    size = path.stat().st_size
    assert cache.load("first", empty_model())
    small = replace(cache, max_bytes=3 * size)
    small.save("fourth", model)
    assert [key for key in ("first", "second", "third", "fourth") if small.holds(key)] == [
        "first",
        "third",
        "fourth",
    ]


def test_models_too_small_to_gain_or_too_large_to_keep_have_no_cache() -> None:
    model = empty_model()
    assert weight_cache(1 << 40, model) is None
    assert model.weight_bytes < module.MIN_BYTES


@pytest.fixture
def source(random_model_path: Path, tmp_path: Path) -> LoadedModel:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in random_model_path.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return load_model(str(folder))


def key_of(source: LoadedModel, settings: object = "bfloat16") -> str:
    return weight_key(source, empty_model(), settings)


def test_the_key_depends_on_the_files_and_not_on_where_they_lie(
    source: LoadedModel, tmp_path: Path
) -> None:
    key = key_of(source)
    moved = source.path.rename(tmp_path / "moved")
    moved_source = replace(source, path=moved, files=(moved / source.files[0].name,))
    assert key_of(moved_source) == key
    assert key_of(source.__class__(**{**fields_of(moved_source), "quantization": "Q8_0"})) != key


def fields_of(source: LoadedModel) -> dict[str, object]:
    return {name: getattr(source, name) for name in source.__slots__}


@pytest.mark.parametrize("change", ["time", "head", "size"])
def test_the_key_changes_with_the_weight_file(source: LoadedModel, change: str) -> None:
    key = key_of(source)
    (path,) = source.files
    stat = path.stat()
    if change == "head":
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
    elif change == "size":
        path.write_bytes(path.read_bytes() + b"\0")
    modified_ns = stat.st_mtime_ns + (change == "time")
    os.utime(path, ns=(modified_ns, modified_ns))
    assert key_of(source) != key


def test_the_key_changes_with_instruction_set_and_settings(
    source: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {key_of(source, settings) for settings in ("bfloat16", "float32")}
    for isa in available_isas():
        monkeypatch.setenv("CHAIRLIFT_ISA", isa)
        keys.add(key_of(source))
    assert len(keys) == len(available_isas()) + 1


def test_the_checksum_tells_every_flipped_bit_and_every_length() -> None:
    data = np.random.default_rng(0).integers(0, 256, 200, np.uint8)
    sums = {checksum(data)}
    for bit in range(data.size * 8):
        changed = data.copy()
        changed[bit // 8] ^= np.uint8(1 << bit % 8)
        sums.add(checksum(changed))
    assert len(sums) == 1 + data.size * 8
    assert len({checksum(np.zeros(n, np.uint8)) for n in range(200)}) == 200


def test_the_checksum_tells_swapped_words() -> None:
    data = np.arange(64, dtype=np.uint64)
    swapped = data.copy()
    swapped[[3, 11, 20]] = data[[11, 20, 3]]
    assert checksum(swapped.view(np.uint8)) != checksum(data.view(np.uint8))
