"""Beside the user's program: what can be found out about it without a TPU, always in a child process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.program.child import ChildLimits
    from tpuwatch.program.preflight import (
        Preflight,
        Program,
        Trial,
        interpreter,
        memory_limit,
        preflight_document,
        run_preflight,
    )
    from tpuwatch.program.targets import CompileTarget, target
else:
    __getattr__, __all__ = public_face(
        __name__,
        {
            "child": ["ChildLimits"],
            "preflight": [
                "Preflight",
                "Program",
                "Trial",
                "interpreter",
                "memory_limit",
                "preflight_document",
                "run_preflight",
            ],
            "targets": ["CompileTarget", "target"],
        },
    )
