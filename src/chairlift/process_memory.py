"""What memory this process holds, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_bytes(statm: Path = _STATM) -> int:
    """Resident memory of this process, pages shared with others included.

    Where the kernel does not say (other systems than Linux), that is 0.
    """
    try:
        return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
