"""Pieces of memory on their way to and from a file, with checksums against damage on disks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from chairlift import _native

Part = npt.NDArray[np.uint8]


def checksum(data: Part) -> int:
    """64-bit checksum of some bytes: Fletcher's (1982), in 32-bit words. [n] uint8, contiguous.

    As fast as memory; it tells damage, not anybody's ill will.
    """
    return _native.checksum(data)


def read_parts(
    descriptor: int,
    parts: Sequence[Part],
    chunk_bytes: int,
    checksums: Sequence[int],
    team: _native.ThreadTeam,
) -> str:
    """Fill parts, which lie end to end from the start of a file; all threads of a team read.

    Args:
        descriptor: Of the open file.
        parts: Each [n] uint8, contiguous, written in full.
        chunk_bytes: Each part is read and checked in pieces of so many bytes.
        checksums: One for each piece of each part, in order.

    Returns:
        Nothing, or what is wrong with the file; what is in the parts then is of no use.

    Raises:
        ValueError: There are more or fewer pieces than checksums.
    """
    return _native.read_parts(descriptor, parts, chunk_bytes, checksums, team)
