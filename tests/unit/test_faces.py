"""Packages import each other through their public faces only: `from tpuwatch.health import judge_node`."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = ROOT / "tpuwatch"
ENTRY_POINT = PACKAGE / "__main__.py"  # calls tpuwatch.cli.main, as the installed command does
LAZY = "tpuwatch.core.lazy"  # which makes the faces


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def deep_imports(path: Path) -> Iterator[str]:
    """The modules of other packages that a file imports directly."""
    parts = path.relative_to(PACKAGE).parts
    own = parts[0] if len(parts) > 1 else ""
    for node in ast.walk(parsed(path)):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            root, *rest = module.split(".")
            if root == "tpuwatch" and len(rest) > 1 and rest[0] != own and module != LAZY:
                yield module


@pytest.mark.slow
def test_no_module_imports_another_packages_module() -> None:
    paths = sorted(set(PACKAGE.rglob("*.py")) - {ENTRY_POINT})
    found = {str(path.relative_to(ROOT)): list(deep_imports(path)) for path in paths}
    assert {path: modules for path, modules in found.items() if modules} == {}


def test_no_module_imports_its_own_face() -> None:
    """A circle through a face is none for import-linter, which refuses all others."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        above = [parent for parent in path.parents if parent.is_relative_to(PACKAGE) and parent != PACKAGE]
        own = {".".join(parent.relative_to(ROOT).parts): parent for parent in above}
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and (face := own.get(node.module or "")):
                modules = {one.stem for one in face.iterdir()}
                found += [f"{path}: {one.name}" for one in node.names if one.name not in modules]
    assert found == []


def test_a_public_class_has_a_name_of_its_own() -> None:
    defined: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}


@cache
def names_of(path: Path) -> frozenset[str]:
    """What a module has to import: what it binds, the names that its face promises, and its modules."""
    found = {one.stem for one in path.parent.iterdir()} if path.name == "__init__.py" else set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return frozenset(found)


@pytest.mark.slow
def test_each_name_that_is_imported_is_there() -> None:
    """Within functions too: those of the long proofs run when a release is near."""
    missing = []
    for folder in ("tpuwatch", "tests", "deploy"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(parsed(path)):
                module = node.module or "" if isinstance(node, ast.ImportFrom) and not node.level else ""
                if module.partition(".")[0] in {"tpuwatch", "tests", "deploy"}:
                    place = ROOT.joinpath(*module.split("."))
                    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
                    names = names_of(file) if file.exists() else frozenset[str]()
                    missing += [f"{path}: {module}.{one.name}" for one in node.names if one.name not in names]
    assert missing == []
