"""The object that "module:name" names."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from .errors import StopError


def named(text: str) -> Any:
    """Import the module and find the object. Raises StopError for a wrong name, and what the module raises."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise StopError("usage", f"{text!r}: give it as module:function, or a file that ends with .mlir")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module and not module.startswith(f"{error.name}."):
            raise
        where = f"in {os.getcwd()} or for {sys.executable}"
        raise StopError("usage", f"there is no module {module!r} {where}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise StopError("usage", f"{module} has no {name!r}")
        found = getattr(found, part)
    return found
