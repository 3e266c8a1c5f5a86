"""The generated pages are what their generators make of the code as it is."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

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


def test_the_picture_of_a_preemption_shows_what_the_scheduler_does() -> None:
    written = (DOCS / "images" / "preemption.svg").read_text(encoding="utf-8")
    assert written == load_script("draw_preemption").draw(), "run: make docs"


def test_the_picture_of_latency_targets_shows_what_the_simulation_says() -> None:
    written = (DOCS / "images" / "target-itl.svg").read_text(encoding="utf-8")
    assert written == load_script("draw_target_itl").draw(), "run: make docs"


PAGES = [*(DOCS.parent / name for name in ("README.md", "CONTRIBUTING.md")), *DOCS.glob("*.md")]
# Where a path without more words is looked for.
FOLDERS = (DOCS.parent, DOCS, DOCS.parent / "src" / "chairlift")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    names = re.findall(r"`([\w/]+\.(?:py|cpp|h|md|svg))`", page.read_text(encoding="utf-8"))
    missing = [n for n in names if not any((folder / n).exists() for folder in FOLDERS)]
    assert missing == []
