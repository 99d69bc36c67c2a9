"""Lazy public faces of packages: a module is loaded when one of its names is first used, so commands start fast.

The `__init__` of a package imports its face as any package does, within `with LazyFace(__name__):`. Readers, type
checkers and import-linter see plain imports; when it runs, each of them is noted, and none is done.
"""

from __future__ import annotations

import builtins
import sys
from _thread import allocate_lock
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_noting = allocate_lock()  # there is one `__import__` for all threads


class LazyFace:
    """While it lasts, imports of the package are noted. Then it has a `__getattr__` (PEP 562) that does them, and an
    `__all__`."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._modules: dict[str, str] = {}  # in which each name is

    def __enter__(self) -> None:
        _noting.acquire()
        self._import = builtins.__import__
        builtins.__import__ = self._note

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._import
        _noting.release()
        face = vars(sys.modules[self._package])
        for name in self._modules:
            del face[name]
        face.update(__getattr__=self._load, __all__=sorted(self._modules))

    def _note(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 # as Python names them
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if globals is None or globals.get("__name__") != self._package:  # of another thread
            return self._import(name, globals, locals, fromlist, level)
        self._modules.update(dict.fromkeys(fromlist or (), name))
        return SimpleNamespace(**dict.fromkeys(fromlist or ()))

    def _load(self, name: str) -> Any:
        if name not in self._modules:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}")
        module = self._modules[name]
        holder = None if module == self._package else import_module(module)
        value = getattr(holder, name) if hasattr(holder, name) else import_module(f"{module}.{name}")
        setattr(sys.modules[self._package], name, value)
        return value
