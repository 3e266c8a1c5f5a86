"""The generated pages are what their generators make of the code as it is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[3] / "docs"


def load_script(name: str) -> ModuleType:
    """Import a script of ``docs/``, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    if spec is None or spec.loader is None:
        raise AssertionError(f"docs/{name}.py cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_page_about_the_command_line_is_current() -> None:
    written = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert written == load_script("generate_cli").generate(), "run: make docs"


def test_the_picture_of_a_step_shows_what_the_scheduler_does() -> None:
    written = (DOCS / "step.svg").read_text(encoding="utf-8")
    assert written == load_script("draw_step").draw(), "run: make docs"
