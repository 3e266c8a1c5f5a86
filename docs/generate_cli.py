"""Write ``docs/cli.md`` out of the command line's own help texts.

    python docs/generate_cli.py          # or: make docs

``generate()`` gives the text without writing it; a test compares it with the file.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from chairlift.cli.app import build_app
from chairlift.cli.help import GENERAL_PANEL

PAGE = Path(__file__).parent / "cli.md"
INTRODUCTION = """\
# The command line

Generated from the help texts by `make docs`; `chairlift COMMAND --help` shows the same.

Exit codes: 0 done; 1 the engine failed; 2 something in the command line, the input or the model is
wrong; 130 stopped with Ctrl-C. An error is one line on standard error that starts with
`chairlift: error:`; `chairlift --debug COMMAND ...` shows the traceback too.
"""


def generate() -> str:
    """Render the whole page as Markdown."""
    program = typer.main.get_command(build_app())
    commands: dict[str, Any] = program.commands  # type: ignore[attr-defined]
    sections = [INTRODUCTION, "## chairlift\n", *_tables(program.params)]
    for name, command in commands.items():
        sections += _sections(f"chairlift {name}", command)
    return "\n".join(sections)


def _sections(words: str, command: Any) -> Iterator[str]:
    """A command, and the commands in it if it is a group."""
    yield f"## {words}\n"
    yield _help_text(command.help or "")
    yield from _tables(command.params)
    for name, member in getattr(command, "commands", {}).items():
        yield from _sections(f"{words} {name}", member)


def _help_text(text: str) -> str:
    """Turn a help text into Markdown: examples, which follow a backspace, become code."""
    prose, _, examples = textwrap.dedent(text).partition("\b\n")
    if not examples:
        return prose.strip() + "\n"
    code = textwrap.dedent(examples).strip()
    return f"{prose.strip()}\n\n```console\n{textwrap.indent(code, '$ ')}\n```\n"


def _tables(params: list[Any]) -> Iterator[str]:
    panels: dict[str, list[Any]] = {"Arguments": [], GENERAL_PANEL: []}
    for param in params:
        is_argument = param.param_type_name == "argument"
        panel = getattr(param, "rich_help_panel", None) or GENERAL_PANEL
        panels.setdefault("Arguments" if is_argument else panel, []).append(param)
    for panel, members in panels.items():
        if members:
            rows = [_row(param) for param in members]
            yield f"| {panel} | Default | Meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _row(param: Any) -> str:
    names = [param.metavar] if param.param_type_name == "argument" else param.opts
    name = ", ".join(f"`{name}`" for name in names)
    if getattr(param, "secondary_opts", None):
        name += f" / `{param.secondary_opts[0]}`"
    default = param.default
    shown = (
        "" if default in (None, False, "", []) or param.name == "help" else f"`{_text(default)}`"
    )
    return f"| {name} | {shown} | {(param.help or '').replace('|', '&#124;')} |"


def _text(default: object) -> str:
    if default is True:
        return "on"
    return str(getattr(default, "value", default))


if __name__ == "__main__":
    PAGE.write_text(generate(), encoding="utf-8")
