"""What the user's interpreter runs, by the path of this file."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import sys

_PACKAGE = "tpuwatch_front"  # no module of the user's has this name
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def _load() -> None:
    """Make this directory a package. Its files are found by that name alone: not as `graph` or `run`, which the user's
    modules may be named."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # this directory
    here = os.path.dirname(os.path.abspath(__file__))
    start = os.path.join(here, "__init__.py")
    spec = importlib.util.spec_from_file_location(_PACKAGE, start, submodule_search_locations=[here])
    if spec is None or spec.loader is None:
        raise ImportError(start)
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[_PACKAGE])


def _end_with(parent: int | None) -> None:
    """Have the kernel end this process when the one that started it dies, however that dies: a compilation that nobody
    waits for would go on for minutes, and take its memory."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:  # it is dead already
        os._exit(1)


if __name__ == "__main__":
    _load()
    asked = json.loads(sys.argv[1])
    _end_with(asked.get("parent"))
    sys.exit(importlib.import_module(f"{_PACKAGE}.run").Front(asked).run())
