"""Whose fault an event or a symptom tells of: the program's, another worker's, or the node's."""

from __future__ import annotations

from typing import Final

from tpuwatch.model import Cause

# What a program or its surroundings did wrong: when it has ended, the node is free and well.
PROGRAM_FAULTS: Final = frozenset(
    {
        Cause.HOST_OOM,
        Cause.PREMAPPED_EXHAUSTED,
        Cause.VMEM_OOM,
        Cause.HBM_OOM_COMPILE,
        Cause.HBM_OOM_RUNTIME,
        Cause.BAD_FLAG,
        Cause.METADATA_UNREACHABLE,
        Cause.VERSION_MISMATCH,
        Cause.AUTH_SCOPE,
        Cause.CREDENTIALS,
        Cause.PERMISSION_DENIED,
        Cause.PROGRAM_MISMATCH,
        Cause.NUMERIC_FAULT,
        Cause.DYNAMIC_SHAPE,
        Cause.UNSUPPORTED_OP,
        Cause.UNPLACEABLE_OP,
        Cause.DATA_PIPELINE_ERROR,
        Cause.INVALID_PROGRAM,
        Cause.TENSOR_HANDLE,
        Cause.COMPILER_CRASH,
    }
)
# What a worker says when another one has a fault: the one that reports is seldom the culprit.
OTHERS_FAULTS: Final = frozenset({Cause.BARRIER_TIMEOUT, Cause.HEARTBEAT_LOST, Cause.MESH_ERROR, Cause.CONNECT_FAILED})
# What may come from a node that is broken.
NODE_FAULTS: Final = frozenset(
    {Cause.DRIVER_ERROR, Cause.NODE_UNHEALTHY, Cause.CORE_HALTED, Cause.NO_TPU_FOUND, Cause.INIT_FAILED}
)
# After these a chip that counts as busy may be one that waits for ever.
HARDWARE_FAULTS: Final = frozenset({Cause.HANG, Cause.CORE_HALTED, Cause.DRIVER_ERROR})
NODE_SYMPTOMS: Final = frozenset({"LOW_MEMORY", "OUT_OF_MEMORY", "EXECUTE_TIMED_OUT", "MESH_BUILD_FAIL"})
