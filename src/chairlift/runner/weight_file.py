"""Packed weights in a file: the bytes of a model's memory, and what tells that they are whole.

The parts lie end to end from the start of the file. Behind them come a JSON object (their sizes, a
checksum of every chunk, and a key that says of what they were made), its length in 8 bytes,
little-endian, and 8 bytes by which the file is known. What was cut off anywhere lacks those.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from chairlift.kernels.cpu_model import CpuModel
from chairlift.kernels.part_files import Part, checksum, read_parts

CHUNK_BYTES = 1 << 20
"""What is read, or written, and checked at once."""

_MAGIC = b"chairwt1"
_TAIL_BYTES = 8 + len(_MAGIC)
_MAX_FOOTER_BYTES = 1 << 24


class BrokenWeightFileError(Exception):
    """The file does not hold what is wanted; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What stands behind the parts.

    Attributes:
        key: Of what the parts were made, and how.
        part_bytes: Size of each part.
        checksums: Of every chunk of every part, in order.
    """

    key: str
    part_bytes: tuple[int, ...]
    checksums: tuple[int, ...]


def write_weight_file(
    file: BinaryIO, key: str, parts: Sequence[Part], pause: Callable[[], object]
) -> None:
    """Write parts and footer to an empty file.

    Args:
        pause: Called after each chunk.

    Raises:
        OSError: The file cannot be written.
    """
    checksums: list[int] = []
    for chunk in _chunks(parts):
        file.write(chunk.data)
        checksums.append(checksum(chunk))
        pause()
    footer = Footer(key, tuple(part.size for part in parts), tuple(checksums))
    text = json.dumps(asdict(footer), separators=(",", ":")).encode()
    file.write(text + len(text).to_bytes(8, "little") + _MAGIC)


def read_weight_file(path: Path, key: str, model: CpuModel, parts: Sequence[Part]) -> None:
    """Fill a model's parts from a file.

    Raises:
        BrokenWeightFileError: The file is not whole, or holds something else; what is in the parts
            then is of no use.
        OSError: The file cannot be opened.
    """
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        footer = _read_footer(descriptor)
        if footer.key != key:
            raise BrokenWeightFileError("it was made of something else")
        if footer.part_bytes != tuple(part.size for part in parts):
            raise BrokenWeightFileError("its parts have other sizes than the model's")
        try:
            fault = read_parts(descriptor, parts, CHUNK_BYTES, footer.checksums, model.team)
        except (ValueError, TypeError):
            raise BrokenWeightFileError("its checksums cannot be read") from None
        if fault:
            raise BrokenWeightFileError(fault)


def _read_footer(descriptor: int) -> Footer:
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    num_bytes = int.from_bytes(tail[:8], "little")
    if not tail.endswith(_MAGIC) or num_bytes > min(size - _TAIL_BYTES, _MAX_FOOTER_BYTES):
        raise BrokenWeightFileError("its end is missing")
    text = os.pread(descriptor, num_bytes, size - _TAIL_BYTES - num_bytes)
    try:
        fields = json.loads(text)
        footer = Footer(fields["key"], tuple(fields["part_bytes"]), tuple(fields["checksums"]))
    except (ValueError, KeyError, TypeError):
        raise BrokenWeightFileError("its description cannot be read") from None
    if sum(footer.part_bytes) != size - _TAIL_BYTES - num_bytes:
        raise BrokenWeightFileError("it has another size than it says")
    return footer


def _chunks(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        for start in range(0, part.size, CHUNK_BYTES):
            yield part[start : start + CHUNK_BYTES]
