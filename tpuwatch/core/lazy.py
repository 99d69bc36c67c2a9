"""Lazy public faces of packages: a module is loaded when one of its names is first used, so commands start fast.

A package's `__init__` lists its face twice: under TYPE_CHECKING for type checkers and readers, and by module in the
call of `public_face`, which makes `__all__` of it. A test checks that the two agree.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def public_face(
    package: str, names: Mapping[str, Iterable[str]], submodules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], list[str]]:
    """The `__getattr__` (PEP 562) and the `__all__` of a package.

    `names` are by the module that defines them; `submodules` are themselves public, and imported as always.
    """
    modules = {name: module for module, defined in names.items() for name in defined}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = f"{package}.{modules[name]}"
        holder = import_module(module)
        value = getattr(holder, name) if hasattr(holder, name) else import_module(f"{module}.{name}")
        setattr(import_module(package), name, value)
        return value

    return load, sorted([*modules, *submodules])
