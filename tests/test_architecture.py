"""The shape of the package: who imports whom, how long modules are, what has a docstring."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "chairlift"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_MODULE_LINES = 400

# Imports go downwards only. A package may import itself and every level below its own; what it
# may import besides, or may not although it lies below, is in the two tables after this one.
LEVELS = {
    "errors": 0,
    "version": 0,
    "sampling_params": 0,
    "inputs": 0,
    "outputs": 0,
    "config": 0,
    "model_spec": 0,
    "process_memory": 0,
    "tokenizer_source": 0,
    "core": 1,
    "tokenization": 1,
    "workload": 1,
    "models": 1,
    "kernels": 1,
    "runner": 2,
    "engine": 3,
    "simulate": 3,
    "server": 4,
    "bench": 4,
    "cluster": 4,
    "cli": 5,
    "__main__": 6,
}
ALSO_ALLOWED = {
    ("kernels", "_native"),
    ("models", "_native"),
    ("simulate", "engine"),
    ("__init__", "engine"),
    ("__init__", "errors"),
    ("__init__", "outputs"),
    ("__init__", "sampling_params"),
    ("__init__", "version"),
}
FORBIDDEN = {
    ("server", "core"),
    ("server", "runner"),
    ("server", "models"),
    ("server", "kernels"),
}
# Not the descriptions of models and tokenizers: they hold numpy arrays.
CORE_MAY_IMPORT = {"errors", "sampling_params", "inputs", "outputs", "config", "core"}


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = ".".join(["chairlift", *path.relative_to(PACKAGE).parts[: -node.level]])
                yield node.lineno, f"{base}.{node.module or ''}"
            elif node.module == "chairlift":
                yield from ((node.lineno, f"chairlift.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module or ""


def _own_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and part of every import of our own package."""
    for line, name in _imports(path):
        words = name.split(".")
        if words[0] == "chairlift" and len(words) > 1:
            yield line, words[1]


def _is_allowed(importer: str, imported: str) -> bool:
    if importer == imported or (importer, imported) in ALSO_ALLOWED:
        return True
    if (importer, imported) in FORBIDDEN or imported not in LEVELS or importer not in LEVELS:
        return False
    below = LEVELS[imported] < LEVELS[importer]
    return below or LEVELS[imported] == LEVELS[importer] == 0


def _violations(path: Path) -> list[str]:
    importer = _part(path)
    return [
        f"{path.relative_to(PACKAGE)}:{line}: {importer} must not import {imported}"
        for line, imported in _own_imports(path)
        if not _is_allowed(importer, imported)
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_downwards_only(path: Path) -> None:
    assert _violations(path) == []


def test_every_part_of_the_package_has_a_level() -> None:
    assert {_part(path) for path in MODULES} - {"__init__"} <= LEVELS.keys()


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("core", "engine"),
        ("core", "kernels"),
        ("models", "kernels"),
        ("tokenization", "core"),
        ("server", "core"),
        ("engine", "server"),
        ("errors", "core"),
        ("unheard_of", "errors"),
    ],
)
def test_the_rule_refuses_sibling_and_upward_imports(importer: str, imported: str) -> None:
    assert not _is_allowed(importer, imported)


def test_core_imports_only_the_foundation_and_the_standard_library() -> None:
    outside = [
        f"{path.name}:{line}: {name}"
        for path in MODULES
        if _part(path) == "core"
        for line, name in _imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names | {"chairlift"}
    ]
    inside = [
        f"{path.name}:{line}: {imported}"
        for path in MODULES
        if _part(path) == "core"
        for line, imported in _own_imports(path)
        if imported not in CORE_MAY_IMPORT
    ]
    assert outside + inside == []


def test_core_reads_no_clock_and_no_file() -> None:
    forbidden = {"time", "datetime", "os", "io", "pathlib", "socket", "random", "secrets"}
    found = [
        f"{path.name}:{line}: {name}"
        for path in MODULES
        if _part(path) == "core"
        for line, name in _imports(path)
        if name.split(".")[0] in forbidden
    ]
    assert found == []


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_stay_short_enough_to_read(path: Path) -> None:
    num_lines = len(path.read_text(encoding="utf-8").splitlines())
    assert num_lines <= MAX_MODULE_LINES, "split it by subject"


def _third_party(path: Path) -> set[str]:
    names = {name.split(".")[0] for _, name in _imports(path)}
    return names - sys.stdlib_module_names - {"chairlift"}


def test_what_is_imported_is_what_the_package_depends_on() -> None:
    """The base install brings no more and no less than the code uses."""
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    declared = {
        re.split(r"[^\w-]", line)[0].replace("-", "_")
        for line in project["project"]["dependencies"]
    }
    used = set().union(*map(_third_party, MODULES))
    comes_along = {"pydantic_core"}  # pydantic's own engine, of the version pydantic needs
    assert used - comes_along == declared


def _undocumented(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if tree.body and ast.get_docstring(tree) is None:
        yield "the module"
    bodies: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
    while bodies:
        prefix, parent = bodies.pop()
        for node in parent.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("_") or _is_overload(node):
                continue
            if ast.get_docstring(node) is None:
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                bodies.append((f"{prefix}{node.name}.", node))


def _is_overload(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_public_name_has_a_docstring(path: Path) -> None:
    assert list(_undocumented(path)) == []
