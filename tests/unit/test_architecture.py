"""docs/architecture.md is true: every package has its place and its limits, and each walk leads from file to file."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LONGEST = {
    "A log line to its metric": 9,
    "A ListNodes reply to the verdict": 9,
    "A verdict to StopNode": 10,
    "A finished launch to the next launch's environment": 9,
    "GET /api/v1/nodes": 7,
    "A failed job under tpuwatch exec to the page": 11,
}
WALKS = {
    title: re.findall(r"^\d+\. `(tpuwatch/[\w/]+\.py)`(.*)$", body, re.MULTILINE)
    for title, body in re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
}


def is_named(path: str, text: str) -> bool:
    """Whether a text uses what the module defines: a class or function of it, or a method of its classes."""
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and re.search(rf"\b{node.name}\b", text):
            return True
        methods = node.body if isinstance(node, ast.ClassDef) else []
        names = [one.name for one in methods if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]
        if any(re.search(rf"[._]{name}\(", text) for name in names):
            return True
    return False


def test_every_package_has_its_place() -> None:
    parts = {path for path in (ROOT / "tpuwatch").iterdir() if not path.name.startswith(("_", "py.typed"))}
    names = {f"tpuwatch/{path.name}/" if path.is_dir() else f"tpuwatch/{path.name}" for path in parts}
    assert set(re.findall(r"^\| `(tpuwatch/[\w.]+/?)` \|", PAGE, re.MULTILINE)) == names


def parts_of(path: Path) -> list[str]:
    """The words that begin the lines of a module's docstring after its first paragraph."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.findall(r"^(\w+): \S.*\.$", docstring.partition("\n\n")[2], re.MULTILINE)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tpuwatch").glob("*/**/__init__.py")), ids=lambda path: path.parent.name
)
def test_a_package_says_what_comes_in_and_out_and_what_it_never_does(path: Path) -> None:
    assert parts_of(path) == ["In", "Out", "Never"]


@pytest.mark.parametrize("path", sorted((ROOT / "tpuwatch").glob("*/service.py")), ids=str)
def test_a_service_says_what_it_turns_how_often_what_it_owns_and_what_it_never_does(path: Path) -> None:
    assert parts_of(path) == ["Turns", "Every", "Owns", "Never"]


def test_there_are_these_walks() -> None:
    assert set(WALKS) >= set(LONGEST)


@pytest.mark.parametrize(("title", "longest"), LONGEST.items())
def test_a_walk_is_short_and_each_file_is_named_by_one_before_it(title: str, longest: int) -> None:
    assert 3 < len(WALKS[title]) <= longest
    before = ""
    for path, about in WALKS[title]:
        assert (ROOT / path).is_file()
        assert not before or "in a new process" in about or is_named(path, before), path
        before += (ROOT / path).read_text(encoding="utf-8")
