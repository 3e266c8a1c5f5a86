"""An engine under comparison: how it is described, its process, and what was measured with it."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workload import Case

DRIVERS = Path(__file__).parent / "peers"
OURS = "chairlift"


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One ``[[engine]]`` of a suite file.

    Attributes:
        name: As the table calls it.
        driver: ``chairlift``, ``openvino``, ``llamacpp`` or ``vllm``: who is asked.
        model: What it loads; ``{dir}`` stands for the folder with the peers.
        format: How weights are stored (``16-bit``, ``int8``, ``4-bit``): peers of the same format
            are compared apart.
        python: Interpreter that has the engine; ``{dir}`` as in ``model``.
        options: For the driver.
        env: Variables of its environment.
        is_peer: Compared with, rather than compared.
        max_rounds: It sits out the rounds after so many; 0: none. For engines far behind.
    """

    name: str
    driver: str
    model: str
    format: str
    python: str = sys.executable
    options: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    is_peer: bool = False
    max_rounds: int = 0


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite file: engines, and the work they get.

    Attributes:
        is_cached: Prompts are in the prefix cache before a batch is timed: decoding alone counts.
    """

    engines: tuple[EngineSpec, ...]
    cases: str
    is_cached: bool = False


def read_suite(path: Path, folder: Path) -> Suite:
    """Read a suite file.

    Args:
        folder: What ``{dir}`` stands for.

    Raises:
        TypeError: A key is not known, or one is missing.
    """
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    engines = []
    for entry in data.pop("engine"):
        entry |= {k: v.replace("{dir}", str(folder)) for k, v in entry.items() if type(v) is str}
        engines.append(EngineSpec(**{"is_peer": entry["driver"] != OURS} | entry))
    return Suite(tuple(engines), **data)


class EngineEndedError(Exception):
    """The process of an engine has ended; why stands on standard error."""


class Engine:
    """A driver process that sleeps whenever it is not asked.

    Attributes:
        rates: Tokens per second by case: output tokens, or prompt tokens of a case with one output
            token each.
    """

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.rates: dict[Case, list[float]] = {}
        self.version = ""
        self.load_s = 0.0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process and wait until its model is loaded.

        Raises:
            EngineEndedError: It cannot be started, or its model cannot be loaded.
        """
        spec = self.spec
        driver = str(DRIVERS / f"{spec.driver}_driver.py")
        python = os.path.expanduser(spec.python)
        if not os.path.exists(python):
            raise EngineEndedError(f"{spec.name} needs {python}, which is not there")
        self._process = subprocess.Popen(
            [python, driver, spec.model, json.dumps(spec.options)],
            env=_clean_environment() | spec.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            process_group=0,
        )
        hello = self._reply()
        self.version, self.load_s = hello["engine"], hello["load_s"]
        self._signal(signal.SIGSTOP)

    def run(self, case: Case, prompts: list[list[int]], *, is_cached: bool) -> float:
        """Run one batch; return tokens per second, prefill included unless it is cached."""
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("start() first")
        batch = {
            "prompts": prompts,
            "num_output_tokens": case.num_output_tokens,
            "is_cached": is_cached,
        }
        self._signal(signal.SIGCONT)
        print(json.dumps(batch), file=self._process.stdin, flush=True)
        reply = self._reply()
        self._signal(signal.SIGSTOP)
        expected = case.num_requests * case.num_output_tokens
        if reply["num_output_tokens"] != expected:
            sys.exit(f"{self.spec.name} gave {reply['num_output_tokens']} tokens, not {expected}")
        rate = float(num_counted_tokens(case) / reply["wall_s"])
        self.rates.setdefault(case, []).append(rate)
        return rate

    def median(self, case: Case) -> float:
        """Median rate of a case."""
        return statistics.median(self.rates[case])

    def stop(self) -> None:
        """End the process and all that it started."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _signal(self, number: signal.Signals) -> None:
        """To the whole group: some engines compute in processes of their own, and spin there."""
        if self._process is not None:
            os.killpg(self._process.pid, number)

    def _reply(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process and self._process.stdout else ""
        if not line:
            raise EngineEndedError(f"{self.spec.name} ended without an answer")
        reply: dict[str, Any] = json.loads(line)
        return reply


def num_counted_tokens(case: Case) -> int:
    """Prompt tokens of a case that is all prefill, output tokens of any other."""
    is_prefill = case.num_output_tokens == 1
    return case.num_requests * (case.num_prompt_tokens if is_prefill else case.num_output_tokens)


def _clean_environment() -> dict[str, str]:
    """Without what tells other libraries how many threads to use: each engine decides itself."""
    prefixes = ("OPENBLAS_", "OMP_", "MKL_", "CHAIRLIFT_ISA")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
