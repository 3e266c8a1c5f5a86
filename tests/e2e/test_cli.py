"""The command line as a user meets it: real processes, on a tiny model whose text is known."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

TIMEOUT_S = 60
CHAIRLIFT = [sys.executable, "-m", "chairlift"]
READY = re.compile(r"API: (http://[\d.:]+)/v1")


def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*CHAIRLIFT, *words], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S
    )


@contextmanager
def start(*words: str, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    """Start a command with pipes, and end it at the latest with the block."""
    process = subprocess.Popen(
        [*CHAIRLIFT, *words],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with process:
            yield process
            process.kill()
    finally:
        process.kill()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end; give exit code and standard error."""
    _, errors = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, errors


def wait_until_ready(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Read what a server prints until it serves; give its address and the text so far."""
    printed = ""
    for line in process.stdout or ():
        printed += line
        if line.startswith("Try:"):
            break
    found = READY.search(printed)
    if found is None:
        raise AssertionError(f"not ready: {printed} {process.communicate()}")
    return found[1], printed


def test_generate_streams_one_text(successor_model_path: Path) -> None:
    done = run("generate", "ABC", "-m", str(successor_model_path), "--max-tokens", "5")
    assert (done.stdout, done.returncode) == ("DEFGH\n", 0), done.stderr


def test_generate_takes_prompts_from_a_pipe_in_order(successor_model_path: Path) -> None:
    words = ["generate", "-m", str(successor_model_path), "--max-tokens", "2", "--json"]
    done = run(*words, stdin="A\nc\n!\n")
    answers = [json.loads(line)["choices"][0] for line in done.stdout.splitlines()]
    assert [(a["text"], a["finish_reason"]) for a in answers] == [
        ("BC", "length"),
        ("de", "length"),
        (".", "stop"),
    ]


def test_generate_takes_sampling_parameters_from_json_lines(
    successor_model_path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"id": "a", "prompt": "A", "max_tokens": 1}\n'
        '{"id": "b", "messages": [{"role": "user", "content": "x"}], "stop": ["D"]}\n'
    )
    done = run("generate", "-m", str(successor_model_path), "--file", str(file), "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    texts = {line["id"]: line["choices"][0]["text"] for line in lines}
    assert texts == {"a": "B", "b": "ABC"}


def test_generate_can_use_the_chat_template(successor_model_path: Path) -> None:
    words = ["-m", str(successor_model_path), "--chat", "--max-tokens", "3"]
    assert run("generate", "hello", *words).stdout == "ABC\n"


def test_chat_answers_each_line_of_a_pipe(successor_model_path: Path) -> None:
    done = run("chat", str(successor_model_path), "--max-tokens", "3", stdin="hi\nyou\n")
    assert (done.stdout, done.returncode) == ("ABC\nABC\n", 0), done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "ABC", "--max-model-len", "4", "--max-tokens", "5"], "max_tokens"),
        (["generate", "ABC", "--max-model-len", "100000000"], "max_model_len must be at most"),
        (["generate", "ABC", "--logit-bias", "5000=1"], "logit_bias"),
        (["generate", ""], "prompt"),
    ],
)
def test_requests_that_cannot_be_served_are_one_line_and_exit_code_2(
    successor_model_path: Path, words: list[str], message: str
) -> None:
    done = run(*words, "-m", str(successor_model_path))
    assert (done.returncode, done.stdout.strip()) == (2, "")
    assert done.stderr.startswith("chairlift: error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_a_broken_model_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00")
    done = run("serve", str(broken), "--port", "0")
    assert done.returncode == 2
    assert re.fullmatch(r"(Loading .*\n)?chairlift: error: .*broken\.gguf.*\n", done.stderr)


def test_ctrl_c_ends_generate_with_130_and_without_a_traceback(
    successor_model_path: Path,
) -> None:
    model = str(successor_model_path)
    with start("generate", "ABC", "-m", model, "--ignore-eos", "--max-tokens", "8000") as process:
        if process.stdout is None or process.stdout.read(3) != "DEF":
            raise AssertionError(finish(process))
        process.send_signal(signal.SIGINT)
        code, errors = finish(process)
    assert (code, errors) == (130, "")


def test_generate_ends_quietly_when_its_reader_has_gone(successor_model_path: Path) -> None:
    model = str(successor_model_path)
    with start("generate", "ABC", "-m", model, "--ignore-eos", "--max-tokens", "8000") as process:
        if process.stdout is None or process.stderr is None:
            raise AssertionError("no pipes")
        process.stdout.read(3)
        process.stdout.close()
        errors = process.stderr.read()
        assert (process.wait(TIMEOUT_S), errors) == (1, "")


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            os.execv(CHAIRLIFT[0], [*CHAIRLIFT, *words])

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._file, text.encode())

    def read_until(self, expected: str) -> str:
        """Read the screen until a text appears."""
        shown = ""
        while expected not in shown:
            if not select.select([self._file], [], [], TIMEOUT_S)[0]:
                raise AssertionError(f"no {expected!r} in {shown!r}")
            shown += os.read(self._file, 4096).decode(errors="replace")
        return shown

    def exit_code(self) -> int:
        """Wait for the end."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._file)
        return os.waitstatus_to_exitcode(status)


def test_ctrl_c_stops_an_answer_of_the_chat_and_not_the_chat(successor_model_path: Path) -> None:
    terminal = Terminal("chat", str(successor_model_path), "--temperature", "0")
    terminal.read_until("> ")
    terminal.type("hello\n")
    terminal.read_until("ABCDEFG")
    terminal.type("\x03")
    terminal.read_until("> ")
    terminal.type("/exit\n")
    assert terminal.exit_code() == 0


def test_serve_says_how_to_use_it_and_ends_with_ctrl_c(successor_model_path: Path) -> None:
    with start("serve", str(successor_model_path), "--port", "0") as process:
        url, printed = wait_until_ready(process)
        with urllib.request.urlopen(f"{url}/health", timeout=TIMEOUT_S) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert finish(process)[0] == 0
    for expected in ("Ready in", f"Web: {url}/", f"curl {url}/v1/chat/completions"):
        assert expected in printed


def test_the_curl_that_serve_prints_works(successor_model_path: Path) -> None:
    with start(
        "serve", str(successor_model_path), "--port", "0", "--max-model-len", "64"
    ) as process:
        _, printed = wait_until_ready(process)
        command = next(line for line in printed.splitlines() if line.startswith("Try: "))
        done = subprocess.run(
            ["bash", "-c", command.removeprefix("Try: ")], capture_output=True, timeout=TIMEOUT_S
        )
    answer = json.loads(done.stdout)
    assert answer["choices"][0]["message"]["content"].startswith("ABC")


def test_a_port_in_use_is_one_line_and_exit_code_2(successor_model_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("serve", str(successor_model_path), "--port", str(port))
    assert done.returncode == 2
    assert f"port {port}" in done.stderr
    assert done.stderr.startswith("chairlift: error: ")
