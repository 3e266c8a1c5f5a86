"""The work that every engine gets: reproducible token ids, and how the result is reported.

Prompts are random token ids, so that no tokenizer is timed and no two prompts share a prefix.
Standard library only: the drivers of other engines, in their own environments, import it too.
"""

from __future__ import annotations

import os
import platform
import random
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEFAULT_CASES = "1:32:128,8:64:128,32:64:128,64:64:128,8:1024:1"
# Cases by name: many requests at once, and long contexts.
NAMED_CASES = {"many": "128:64:128,256:64:128", "long": "32:1024:64,32:4096:32"}
FIRST_TOKEN_ID, PAST_LAST_TOKEN_ID = 100, 40_000


@dataclass(frozen=True, slots=True)
class Case:
    """One batch: so many requests at once, each with so many prompt and output tokens."""

    num_requests: int
    num_prompt_tokens: int
    num_output_tokens: int

    def __str__(self) -> str:
        return f"{self.num_requests}:{self.num_prompt_tokens}:{self.num_output_tokens}"


def parse_cases(spec: str) -> list[Case]:
    """Read ``requests:prompt_tokens:output_tokens``, or names of cases, comma-separated.

    Raises:
        ValueError: Something else was given, or a number below 1.
    """
    cases = []
    items = (NAMED_CASES.get(item, item) for item in spec.split(","))
    for item in ",".join(items).split(","):
        numbers = [int(number) for number in item.split(":")]
        if len(numbers) != 3 or min(numbers) < 1:
            raise ValueError(f"a case is REQUESTS:PROMPT_TOKENS:OUTPUT_TOKENS, got {item!r}")
        cases.append(Case(*numbers))
    return cases


def with_prompts(
    cases: list[Case], vocab_size: int = PAST_LAST_TOKEN_ID
) -> Iterator[tuple[Case, list[list[int]]]]:
    """Give each case its prompts: the same for every engine and every run.

    Args:
        vocab_size: Ids that a smaller vocabulary does not have are taken modulo its size.
    """
    rng = random.Random(0)

    def prompt(num_tokens: int) -> list[int]:
        ids = (rng.randrange(FIRST_TOKEN_ID, PAST_LAST_TOKEN_ID) for _ in range(num_tokens))
        return [token_id % vocab_size for token_id in ids]

    for case in cases:
        yield case, [prompt(case.num_prompt_tokens) for _ in range(case.num_requests)]


def describe_machine() -> dict[str, object]:
    """Say where and when figures were measured: processor, cores, load, date, commit."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": _cpu_name(),
        "num_cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
        "commit": _commit(),
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    here = Path(__file__).parent
    try:
        return subprocess.run(
            command, cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
