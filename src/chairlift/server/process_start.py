"""When this process was started, so that a start can be timed from where the user waits."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STAT = Path("/proc/self/stat")
# Its fields are counted from 1; what comes before the third may hold blanks, up to a bracket.
_FIRST_AFTER_NAME, _START_TIME = 3, 22


def process_started_s(stat: Path = _STAT) -> float:
    """When this process was started, on the clock of ``time.monotonic``, to 10 ms.

    Where the kernel does not say (other systems than Linux), that is now.
    """
    now_s = time.monotonic()
    try:
        fields = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        started_s = int(fields[_START_TIME - _FIRST_AFTER_NAME]) / os.sysconf("SC_CLK_TCK")
        return now_s - max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
    except (OSError, ValueError, IndexError, AttributeError):
        return now_s
