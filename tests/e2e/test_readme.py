"""What the README shows, run as it stands there, on the default model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8000"
TIMEOUT_S = 120


def blocks(language: str) -> list[str]:
    """Code blocks of one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where ``chairlift serve`` serves the default model."""
    command = [sys.executable, "-m", "chairlift", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stdout or ())
            yield next(line.split()[1] for line in lines if line.startswith("API:"))[: -len("/v1")]
        finally:
            process.terminate()


def run(command: list[str]) -> str:
    """Run a command that must work; give its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def test_the_curl_command_gets_the_answer_that_is_shown(address: str) -> None:
    block = next(block for block in blocks("console") if block.startswith("$ curl"))
    command, _, shown = block.removeprefix("$ ").partition("}'\n")
    answer = json.loads(run(["bash", "-c", (command + "}' -sS").replace(ADDRESS, address)]))
    content = answer["choices"][0]["message"]["content"]
    assert f'"content":"{content}"' in shown


def test_the_program_with_the_openai_client_streams_text(address: str) -> None:
    program = next(block for block in blocks("python") if "openai" in block)
    assert run([sys.executable, "-c", program.replace(ADDRESS, address)]).strip()


def test_the_program_with_the_python_api_prints_one_answer_per_prompt() -> None:
    program = next(block for block in blocks("python") if "LLM" in block)
    assert " Paris" in run([sys.executable, "-c", program])


def test_the_generate_command_works() -> None:
    line = next(line for line in README.splitlines() if line.startswith("$ chairlift generate"))
    command = line.removeprefix("$ chairlift")
    assert " Paris" in run(["bash", "-c", f"{sys.executable} -m chairlift{command}"])
