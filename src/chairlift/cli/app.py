"""The sub-commands and the options before them, put together for the words of a command line."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from chairlift.cli.help import GroupedCommand
from chairlift.version import VERSION

COMMANDS = (
    "serve",
    "generate",
    "chat",
    "pull",
    "info",
    "explain",
    "timeline",
    "simulate",
    "plan",
    "bench",
)


def build_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Make the command-line program with some of its sub-commands.

    Each sub-command is the function, or the group of commands, of its name in the module of its
    name, which is imported only if it is wanted: starting a server should not wait for the chat.
    """
    app = typer.Typer(
        name="chairlift",
        help="LLM inference with continuous batching: serve an OpenAI-compatible API, or answer "
        "prompts right here.",
        epilog="Start with: chairlift serve",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_global_options)
    for name in names:
        command = getattr(import_module(f"chairlift.cli.{name}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(cls=GroupedCommand)(command)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"chairlift {VERSION}")
        raise typer.Exit


def _global_options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that stand before the sub-command; ``main`` acts on ``debug``."""
