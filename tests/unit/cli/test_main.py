"""How the command ends: exit codes, one-line errors, and the time it takes to say its version."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chairlift.cli import main as cli
from chairlift.engine.child import EngineChild
from chairlift.errors import ChairliftError, ConfigError, EngineDeadError, ModelLoadError

HEAVY_MODULES = {"torch", "transformers", "numpy", "fastapi", "tokenizers", "jinja2", "rich"}


def run(*words: str) -> int:
    """Run the command line in this process and give its exit code."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    code = ended.value.code
    if not isinstance(code, int):
        raise AssertionError(f"exit code {code!r}")
    return code


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Make ``chairlift pull`` raise what this is called with."""

    def arrange(error: BaseException) -> None:
        def pull_model(model: str, progress: object) -> Path:
            raise error

        monkeypatch.setattr("chairlift.models.pull.pull", pull_model)

    return arrange


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == "chairlift 0.1.0\n"


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "chairlift", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "chairlift 0.1.0\n")


def test_saying_the_version_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom chairlift.cli.main import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit:\n    print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY_MODULES & set(done.stdout.split()) == set()


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert "serve" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["serve", "generate", "chat", "pull", "info"])
def test_every_command_has_help_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--help") == 0
    assert f"chairlift {command}" in capsys.readouterr().out.partition("Examples:")[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--no-such-flag"], "--no-such-flag"),
        (["no-such-command"], "no-such-command"),
        (["serve", "--port", "many"], "'--port'"),
        (["serve", "--dtype", "float16"], "'float16'"),
        (["serve", "--kv-cache-dtype", "fp8"], "'fp8'"),
        (["serve", "--max-num-seqs", "0"], "max_num_seqs must be an integer of at least 1, got 0"),
        (["serve", "--port", "70000"], "port must be between 0 and 65535, got 70000"),
        (["generate", "x", "--top-p", "2"], "top_p must be above 0 and at most 1, got 2"),
        (["generate", "--file", "/no/such/file"], "/no/such/file"),
        (["generate", "x", "--system", "y"], "add --chat"),
        (["info", "/no/such/model.gguf"], "/no/such/model.gguf"),
    ],
)
def test_bad_input_is_one_line_on_standard_error_and_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("chairlift: error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModelLoadError("broken\nfile"), 2),
        (ConfigError("bad"), 2),
        (EngineDeadError("gone"), 1),
        (PermissionError(13, "Permission denied", "/x"), 2),
    ],
)
def test_errors_of_commands_are_one_line_and_decide_the_exit_code(
    failing: Callable[[BaseException], None],
    error: ChairliftError | OSError,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing(error)
    assert run("pull") == code
    assert capsys.readouterr().err == f"chairlift: error: {' '.join(str(error).split())}\n"


def test_debug_shows_where_an_error_comes_from(failing: Callable[[BaseException], None]) -> None:
    failing(ModelLoadError("broken"))
    with pytest.raises(ModelLoadError, match="broken"):
        cli.main(["--debug", "pull"])


def test_ctrl_c_ends_quietly_with_130(
    failing: Callable[[BaseException], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failing(KeyboardInterrupt())
    assert run("pull") == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_reader_that_has_gone_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "chairlift", "serve", "--help"],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[EngineChild]:
    """The engine processes that the command line starts."""
    children: list[EngineChild] = []
    spawn = EngineChild.spawn

    def record() -> EngineChild:
        children.append(spawn())
        return children[-1]

    monkeypatch.setattr(EngineChild, "spawn", record)
    return children


@pytest.mark.parametrize(
    "words", [["--port", "many"], ["--max-num-seqs", "0"], ["/nowhere/model.gguf"]]
)
def test_a_refused_command_line_leaves_no_engine_process(
    words: list[str], spawned: list[EngineChild], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("serve", *words) == cli.EXIT_USAGE
    assert [child.process.poll() is not None for child in spawned] == [True]
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("words", [["serve", "--help"], ["info", "--help"], ["--help"]])
def test_asking_for_help_starts_no_engine_process(
    words: list[str], spawned: list[EngineChild], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 0
    assert "Usage" in capsys.readouterr().out
    assert spawned == []
