"""The page about the command line says what ``--help`` says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[3] / "docs"


def load_generator() -> ModuleType:
    """Import ``docs/generate_cli.py``, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("generate_cli", DOCS / "generate_cli.py")
    if spec is None or spec.loader is None:
        raise AssertionError("docs/generate_cli.py cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_about_the_command_line_is_current() -> None:
    written = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert written == load_generator().generate(), "run: make docs"
