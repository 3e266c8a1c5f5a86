"""Names for the content of full KV blocks, so that equal prefixes find each other.

The KV of a block depends on all tokens before it as well, so a block's hash takes in the hash of
the block before. SHA-256 makes two different prefixes with one name practically impossible, also
for somebody who tries; the first block takes in a salt, which keeps tenants' caches apart.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import sha256


def root_hash(cache_salt: str) -> bytes:
    """The hash before the first block. 32 bytes."""
    return sha256(cache_salt.encode("utf-8", "surrogatepass")).digest()


def hash_block(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The hash of a full block with these tokens after the prefix named ``parent``. 32 bytes."""
    return sha256(parent + array("q", token_ids).tobytes()).digest()
