"""Packed weights kept on disk, so that the next start reads them as the kernels want them.

Reading a model the first time dequantises and packs every weight. What comes out is written to the
cache folder afterwards, beside the work, and read by later starts. A file goes by a key: a hash
over all that its bytes depend on. It is dropped when the folder grows over its bound, the longest
unused first. Whatever goes wrong here costs a line in the log and the time, never the start.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chairlift.kernels.cpu_model import CpuModel, extension_path
from chairlift.kernels.part_files import Part
from chairlift.models.cache import cache_dir, exclusive
from chairlift.models.loaded_model import LoadedModel
from chairlift.runner.weight_file import (
    BrokenWeightFileError,
    read_weight_file,
    write_weight_file,
)

MIN_BYTES = 32 << 20
"""Smaller models are read from their own files as quickly."""

_LOGGER = logging.getLogger(__name__)
_SUFFIX = ".weights"
_TEMPORARY_SUFFIX = ".tmp"
_NUM_SAMPLES = 16
_SAMPLE_BYTES = 4096
_HEAD_BYTES = 1 << 16
# Writing shares the memory with the first requests: most of the time is left to them.
_PAUSE_S = 0.001


@dataclass(frozen=True, slots=True)
class WeightCache:
    """A folder of packed weights.

    Attributes:
        folder: May not exist yet.
        max_bytes: Most that all its files may take.
    """

    folder: Path
    max_bytes: int

    def holds(self, key: str) -> bool:
        """Whether there is a file of this key."""
        return self._path(key).exists()

    def load(self, key: str, model: CpuModel) -> bool:
        """Fill a model's weights from the file of this key.

        Returns:
            Whether it is whole; if not, the model has no weights, as before.
        """
        path = self._path(key)

        def read(parts: Sequence[Part]) -> bool:
            try:
                read_weight_file(path, key, model, parts)
                os.utime(path)
            except BrokenWeightFileError as error:
                _LOGGER.warning("%s is not used: %s; it is made again", path, error)
                path.unlink(missing_ok=True)
                return False
            except OSError as error:
                _LOGGER.warning("cannot read packed weights: %s", error)
                return False
            return True

        return model.restore_weights(read)

    def save(self, key: str, model: CpuModel, hurry: threading.Event | None = None) -> bool:
        """Write a loaded model's weights, unless they are there, and drop what is too much.

        Args:
            hurry: Until it is set, most of the time is left to others; if not given, none is.

        Returns:
            Whether they are there now.
        """
        parts = model.weight_parts()
        num_bytes = sum(part.size for part in parts)
        if num_bytes > self.max_bytes:
            return False
        try:
            with exclusive(self.folder):
                if not self.holds(key):
                    self._make_room(num_bytes)
                    self._write(key, parts, hurry)
        except OSError as error:
            _LOGGER.warning("packed weights are not kept in %s: %s", self.folder, error)
            return False
        return True

    def _write(self, key: str, parts: Sequence[Part], hurry: threading.Event | None) -> None:
        def pause() -> None:
            if hurry is not None:
                hurry.wait(_PAUSE_S)

        temporary = self._path(key).with_suffix(_TEMPORARY_SUFFIX)
        try:
            with temporary.open("wb") as file:
                write_weight_file(file, key, parts, pause)
                file.flush()
                # Before the disk has it all: should that fail, the checksums will tell.
                temporary.rename(self._path(key))
                if hurry is None or not hurry.is_set():
                    os.fsync(file.fileno())
        finally:
            temporary.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _make_room(self, num_bytes: int) -> None:
        """Drop leftovers of writers that were ended, and the longest unused files."""
        for leftover in self.folder.glob(f"*{_TEMPORARY_SUFFIX}"):
            leftover.unlink(missing_ok=True)
        used = num_bytes
        files = [(path, path.stat()) for path in self.folder.glob(f"*{_SUFFIX}")]
        for path, stat in sorted(files, key=lambda file: file[1].st_mtime, reverse=True):
            used += stat.st_size
            if used > self.max_bytes:
                path.unlink(missing_ok=True)


class Saving:
    """Weights on their way to a cache, on a thread that a process does not wait for."""

    def __init__(self, cache: WeightCache, key: str, model: CpuModel) -> None:
        self._hurry = threading.Event()
        self._thread = threading.Thread(
            target=cache.save,
            args=(key, model, self._hurry),
            name="chairlift-weight-cache",
            daemon=True,
        )
        self._thread.start()

    def finish(self, timeout_s: float = 3.0) -> None:
        """Wait until they are there, which takes less than a second for each gigabyte."""
        self._hurry.set()
        self._thread.join(timeout_s)


def weight_cache(max_bytes: int, model: CpuModel) -> WeightCache | None:
    """The user's cache, if this model's weights are to be kept in it."""
    if not MIN_BYTES <= model.weight_bytes <= max_bytes:
        return None
    return WeightCache(cache_dir() / "weights", max_bytes)


def weight_key(source: LoadedModel, model: CpuModel, settings: object) -> str:
    """Hash of all that the packed weights of a model depend on, 32 hexadecimal digits.

    That is the model's weight files, its description, the instruction set, the settings, and the
    extension that packs. Files count by size, time of modification, their first 64 KiB and 16
    samples of 4 KiB; where they lie does not count.

    Args:
        settings: Whatever else packing depends on; its ``repr`` counts.

    Raises:
        OSError: A file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(extension_path().read_bytes())
    digest.update(repr((source.spec, source.quantization, model.isa, settings)).encode())
    for path in source.files:
        for piece in _sampled(path):
            digest.update(piece)
    return digest.hexdigest()


def _sampled(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        stat = os.fstat(file.fileno())
        yield repr((stat.st_size, stat.st_mtime_ns)).encode()
        yield os.pread(file.fileno(), _HEAD_BYTES, 0)
        for i in range(_NUM_SAMPLES):
            yield os.pread(file.fileno(), _SAMPLE_BYTES, stat.st_size * i // _NUM_SAMPLES)
