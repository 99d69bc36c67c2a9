"""Beside the user's program: what can be found out about it without a TPU, always in a child process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.program.child import ChildLimits, available_memory
    from tpuwatch.program.preflight import (
        Preflight,
        Program,
        Trial,
        interpreter,
        memory_limit,
        preflight_document,
        run_preflight,
    )
    from tpuwatch.program.probe import ProbeRequest, ProbeResult, probe_command, probe_document, run_probe
    from tpuwatch.program.profiling import find_profile, profile_command, profile_document, read_profile
    from tpuwatch.program.targets import CompileTarget, target
else:
    __getattr__, __all__ = public_face(
        __name__,
        {
            "child": ["ChildLimits", "available_memory"],
            "preflight": [
                "Preflight",
                "Program",
                "Trial",
                "interpreter",
                "memory_limit",
                "preflight_document",
                "run_preflight",
            ],
            "probe": ["ProbeRequest", "ProbeResult", "probe_command", "probe_document", "run_probe"],
            "profiling": ["find_profile", "profile_command", "profile_document", "read_profile"],
            "targets": ["CompileTarget", "target"],
        },
    )
