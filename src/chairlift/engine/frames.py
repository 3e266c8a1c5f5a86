"""Messages between the front and the engine process as bytes on a stream socket.

A frame is its length (4 bytes, little-endian) and a pickle: both ends are this program, started by
one another and joined by a socket pair that nobody else can reach.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Any

_LENGTH = struct.Struct("<I")


def encode_frame(message: object) -> bytes:
    """Bytes of one message on the wire."""
    payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(payload)) + payload


class FrameDecoder:
    """Puts messages together from pieces of the stream, however those were cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Take in some bytes; yields the messages they complete."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._buffer, start)
                end = start + _LENGTH.size + length
                if len(self._buffer) < end:
                    break
                payload = bytes(self._buffer[start + _LENGTH.size : end])
                start = end
                yield pickle.loads(payload)
        finally:
            del self._buffer[:start]
