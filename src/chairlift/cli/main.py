"""The ``chairlift`` command, and how each of its sub-commands may end.

Exit codes: 0 done; 1 the engine failed; 2 something in the command line, the input or the model
is wrong; 130 stopped with Ctrl-C; 143 stopped with SIGTERM before it served. Errors are one line on
standard error; ``--debug`` before the sub-command shows where they came from.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from chairlift.errors import ChairliftError, EngineError

if TYPE_CHECKING:
    from chairlift.engine.child import EngineChild

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 130, 143

_HELP_FLAGS = frozenset({"-h", "--help"})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    Args:
        arguments: Words after ``chairlift``; those of this process if not given.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if words == ["--version"]:
        from chairlift.version import VERSION

        print(f"chairlift {VERSION}")
        sys.exit(0)
    sys.exit(_run(words))


def _run(words: Sequence[str]) -> int:
    with _engine_child(words) as child:
        return _run_command(words, child)


@contextmanager
def _engine_child(words: Sequence[str]) -> Iterator[EngineChild | None]:
    """Start the engine's process for what will need it, before anything else takes time.

    It imports numpy and the kernels while this process imports what reads the flags. Should those
    be wrong, it is ended again.
    """
    _, command = _split(words)
    if command != "serve" or not _HELP_FLAGS.isdisjoint(words):
        yield None
        return
    from chairlift.engine.child import EngineChild

    # Otherwise pydantic looks through all installed packages for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Everything that a start makes stays: looking through it for garbage would take a sixth of it.
    # The server collects again, and takes over the signal, once it is ready.
    gc.disable()
    before = signal.signal(signal.SIGTERM, _end_before_ready)
    child = EngineChild.spawn()
    try:
        yield child
    finally:
        child.end()
        signal.signal(signal.SIGTERM, before)
        gc.enable()


def _end_before_ready(_number: int, _frame: FrameType | None) -> None:
    print("chairlift: stopped with SIGTERM before it was ready", file=sys.stderr, flush=True)
    raise SystemExit(EXIT_TERMINATED)


def _run_command(words: Sequence[str], child: EngineChild | None) -> int:
    import typer

    from chairlift.cli.app import COMMANDS, build_app

    flags, command = _split(words)
    try:
        app = build_app([command] if command in COMMANDS else COMMANDS)
        code = app(words, standalone_mode=False, prog_name="chairlift", obj=child)
        sys.stdout.flush()
        return code or 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _close_broken_pipe()
    except (ChairliftError, typer.TyperException, OSError) as error:
        if "--debug" in flags:
            raise
        return _report(error)


def _split(words: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """Separate what stands before the sub-command from the sub-command."""
    place = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    return words[:place], words[place] if place < len(words) else None


def _report(error: Exception) -> int:
    format_message = getattr(error, "format_message", error.__str__)
    message = " ".join(format_message().split())
    print(f"chairlift: error: {message or type(error).__name__}", file=sys.stderr)
    return EXIT_FAILED if isinstance(error, EngineError) else EXIT_USAGE


def _close_broken_pipe() -> int:
    """Whoever read our output has gone: end quietly, as other commands in a pipe do."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILED
