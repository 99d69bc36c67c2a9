"""Lazy public faces of packages: a module is loaded when one of its names is first used, so commands start fast.

A package's `__init__` lists its face three times: under TYPE_CHECKING for type checkers and readers, in `__all__`, and
by module in the call of `public_face`. A test checks that the three agree.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def public_face(package: str, names: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """The `__getattr__` (PEP 562) of a package; `names` are the public names by the module that defines them."""
    modules = {name: module for module, defined in names.items() for name in defined}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = f"{package}.{modules[name]}"
        holder = import_module(module)
        value = getattr(holder, name) if hasattr(holder, name) else import_module(f"{module}.{name}")
        setattr(import_module(package), name, value)
        return value

    return load
