"""The public face of each package: what it lists for type checkers is what it has, and each name loads."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuwatch.core.lazy import public_face

FACES = sorted(path for path in (ROOT / "tpuwatch").glob("*/__init__.py") if "public_face(" in path.read_text())


def listed(path: Path) -> dict[str, str]:
    """The names that are imported under TYPE_CHECKING, with their modules."""
    (checked,) = (node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.If))
    found = [(alias.name, node.module) for node in checked.body for alias in node.names]  # type: ignore[attr-defined]
    assert len(found) == len(dict(found))
    return dict(found)


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.parent.name)
def test_a_face_has_what_it_lists_and_each_name_loads(path: Path) -> None:
    face = import_module(f"tpuwatch.{path.parent.name}")
    assert face.__all__ == sorted(listed(path))
    for name, module in listed(path).items():
        holder = import_module(module)
        expected = getattr(holder, name) if hasattr(holder, name) else import_module(f"{module}.{name}")
        assert getattr(face, name) is expected


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'tpuwatch\.core' has no attribute 'nothing'"):
        public_face("tpuwatch.core", str(ROOT / "tpuwatch" / "core" / "__init__.py"))[0]("nothing")
