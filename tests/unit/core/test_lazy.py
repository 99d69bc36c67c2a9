"""The public face of each package: each name loads when it is asked for, and none before."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from tests.paths import ROOT
from tpuwatch.core.lazy import LazyFace

FACES = sorted(path for path in (ROOT / "tpuwatch").glob("*/__init__.py") if "LazyFace(" in path.read_text())


def names_of(path: Path) -> dict[str, str]:
    """The names of a face, by the module from which it imports them."""
    (face,) = (node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.With))
    names = [
        (alias.name, str(one.module)) for one in face.body if isinstance(one, ast.ImportFrom) for alias in one.names
    ]
    assert len(names) == len(dict(names))
    return dict(names)


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.parent.name)
def test_each_name_of_a_face_loads(path: Path) -> None:
    face, names = import_module(f"tpuwatch.{path.parent.name}"), names_of(path)
    assert face.__all__ == sorted(names)
    for name, module in names.items():
        holder = None if module == face.__name__ else import_module(module)
        expected = getattr(holder, name) if hasattr(holder, name) else import_module(f"{module}.{name}")
        assert getattr(face, name) is expected


def test_a_face_loads_nothing_by_itself() -> None:
    code = "import sys, tpuwatch.model; print([name for name in sys.modules if name.startswith('tpuwatch.model.')])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'tpuwatch\.core' has no attribute 'nothing'"):
        import_module("tpuwatch.core").nothing  # noqa: B018 # it is asked for


def test_another_thread_imports_as_always_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "a_package", ModuleType("a_package"))
    found = []
    with LazyFace("a_package"):
        thread = threading.Thread(target=lambda: found.append(__import__("json.decoder").decoder.__name__))
        thread.start()
        thread.join()
    assert found == ["json.decoder"]
