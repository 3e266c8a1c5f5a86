"""Trace files: one line per request, with the columns of the Azure LLM inference traces.

    TIMESTAMP,ContextTokens,GeneratedTokens
    2023-11-16 18:15:46.6805900,374,44

Source: Patel et al. 2024, "Splitwise", which published such traces of two services.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from chairlift.errors import ConfigError
from chairlift.workload.workload import Workload

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MICROSECOND_DIGITS = 6


def read_trace(path: Path, *, limit: int | None = None) -> Workload:
    """Read a trace file.

    Args:
        path: A CSV file whose header holds :data:`COLUMNS`; other columns are ignored. Timestamps
            are dates with times, or numbers of seconds. Lines may be in any order.
        limit: Read so many requests from the start of the file at most.

    Returns:
        The requests in order of arrival, the first of them at 0.

    Raises:
        ConfigError: The file cannot be read as such, or holds no request; the message names the
            line.
        OSError: The file cannot be opened.
    """
    rows: list[tuple[float, int, int]] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        for row in _rows(path, csv.DictReader(file)):
            if limit is not None and len(rows) >= limit:
                break
            rows.append(row)
    if not rows:
        raise ConfigError(f"{path} holds no request")
    rows.sort(key=lambda row: row[0])
    times_s, prompts, outputs = zip(*rows, strict=True)
    return Workload(np.array(times_s) - times_s[0], np.array(prompts), np.array(outputs))


def _rows(path: Path, reader: csv.DictReader[str]) -> Iterator[tuple[float, int, int]]:
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError(f"{path} must have the columns {', '.join(COLUMNS)}; {missing[0]} is not")
    for row in reader:
        try:
            num_prompt, num_output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            if num_prompt < 1 or num_output < 1:
                raise ValueError("token counts must be at least 1")
            yield _seconds(row["TIMESTAMP"]), num_prompt, num_output
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path} line {reader.line_num}: {error}") from None


def _seconds(stamp: str) -> float:
    """Seconds of a timestamp, from any fixed moment."""
    try:
        return float(stamp)
    except ValueError:
        pass
    # The traces have seven digits of a second and Python reads six.
    whole, dot, rest = stamp.partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    cut = rest[: min(digits, _MICROSECOND_DIGITS)].ljust(_MICROSECOND_DIGITS, "0") + rest[digits:]
    moment = datetime.fromisoformat(whole + dot + (cut if dot else ""))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()
