"""Promise 1 at each instruction set level this machine can run, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chairlift.kernels.isa import available_isas

ROOT = Path(__file__).parents[2]
SCENARIOS = "everything or two_threads or chunks_and_decodes or block_sizes or with_two_cached"


@pytest.mark.parametrize("isa", available_isas())
def test_contract_holds(isa: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-k",
            SCENARIOS,
            "-p",
            "no:cacheprovider",
            "tests/contract/test_same_request_same_tokens.py",
        ],
        cwd=ROOT,
        env={**os.environ, "CHAIRLIFT_ISA": isa},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
