"""Lazy public faces of packages: a module is loaded when one of its names is first used, so commands start fast.

A package's `__init__` lists its face once, as imports under TYPE_CHECKING: for type checkers, for people, and for
`public_face`, which reads them there. That takes some 30 microseconds.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_IMPORT: Final = re.compile(r"^    from (\S+) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)
_NAME: Final = re.compile(r"\w+")


def public_face(package: str, path: str) -> tuple[Callable[[str], Any], list[str]]:
    """The `__getattr__` (PEP 562) and the `__all__` of a package, whose `__init__` is the file at `path`."""
    with open(path, encoding="utf-8") as file:
        listed = file.read().partition("\nif TYPE_CHECKING:\n")[2]
    modules = {name: found[1] for found in _IMPORT.finditer(listed) for name in _NAME.findall(found[2] or found[3])}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        holder = import_module(module) if module != package else None  # which has its own modules as names
        value = getattr(holder, name) if hasattr(holder, name) else import_module(f"{module}.{name}")
        setattr(import_module(package), name, value)
        return value

    return load, sorted(modules)
