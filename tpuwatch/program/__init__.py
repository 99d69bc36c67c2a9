"""Beside the user's program: what can be found out about it, always in a child process of its own.

In: the user's interpreter and program.
Out: memory, FLOPs, layouts, the device and the time that it takes.
Never: imports JAX, TensorFlow or PyTorch into tpuwatch's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.program.child import OWN_CHILD, ChildLimits, available_memory
    from tpuwatch.program.layout import (
        LANES,
        Layout,
        Tensor,
        best_layout,
        hlo_type,
        laid_out,
        layout_of_size,
        parse_tensor,
        tile,
        without_waste,
    )
    from tpuwatch.program.output import findings_of
    from tpuwatch.program.preflight import (
        HBM,
        Change,
        Preflight,
        Program,
        Trial,
        interpreter,
        memory_limit,
        preflight_document,
        run_preflight,
    )
    from tpuwatch.program.probe import ProbeRequest, ProbeResult, probe_command, probe_document, run_probe
    from tpuwatch.program.profiling import find_profile, profile_command, profile_findings, read_profile
    from tpuwatch.program.roofline import flops_of, mxu_bound, roofline_of
    from tpuwatch.program.targets import CompileTarget, target
else:
    __getattr__, __all__ = public_face(__name__, __file__)
