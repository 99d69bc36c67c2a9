"""The public face of each package: its two lists name the same things, and each name loads."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuwatch.core.lazy import public_face

FACES = sorted(path for path in (ROOT / "tpuwatch").glob("*/__init__.py") if "public_face(" in path.read_text())


def module_names(tree: ast.Module, package: str) -> dict[str, str]:
    """Names imported under TYPE_CHECKING, by the module that defines them, as the mapping writes it."""
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    names = {}
    for node in checked.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for alias in node.names:
            names[alias.name] = node.module.removeprefix(package).lstrip(".")
    return names


def mapped_names(tree: ast.Module) -> dict[str, str]:
    """Names in the mapping of `public_face`, by module."""
    (call,) = (
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "public_face"
    )
    mapping = ast.literal_eval(call.args[1])
    names = [name for defined in mapping.values() for name in defined]
    assert len(names) == len(set(names))
    return {name: module for module, defined in mapping.items() for name in defined}


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.parent.name)
def test_the_lists_of_a_face_agree_and_each_name_loads(path: Path) -> None:
    package = f"tpuwatch.{path.parent.name}"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checked = module_names(tree, package)
    mapped = mapped_names(tree)
    face = import_module(package)
    submodules = dict.fromkeys(set(face.__all__) - mapped.keys(), "")
    assert checked == mapped | submodules
    assert face.__all__ == sorted(checked)
    for name, module in checked.items():
        holder = import_module(f"{package}.{module}".rstrip("."))
        expected = getattr(holder, name) if hasattr(holder, name) else import_module(f"{holder.__name__}.{name}")
        assert getattr(face, name) is expected


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'tpuwatch\.core' has no attribute 'nothing'"):
        public_face("tpuwatch.core", {"clock": ["Clock"]})[0]("nothing")
