"""A training job's own output, which carries what never reaches libtpu's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from tpuwatch.sim.host import report

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = "/home/user/train.py"
_SITE = "/home/user/venv/lib/python3.11/site-packages"


class JobOutput:
    """Writes to a job's stdout and stderr, which launchers put into one file; each call is flushed."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def line(self, text: str = "") -> None:
        """One line of text."""
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def step(self, step: int, loss: float, seconds: float) -> None:
        """One line of training progress."""
        self.line(f"step {step}: loss: {loss:.4f}, {seconds:.3f} s/step")

    def traceback(self, error: str) -> None:
        """An uncaught JAX error; `error` is the status and its text, as XLA words it."""
        self.line(
            f"""Traceback (most recent call last):
  File "{SCRIPT}", line 184, in <module>
    main(parse_arguments())
  File "{SCRIPT}", line 112, in main
    state, loss = train_step(state, batch)
                  ^^^^^^^^^^^^^^^^^^^^^^^^
  File "{_SITE}/jax/_src/traceback_util.py", line 180, in reraise_with_filtered_traceback
    return fun(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^
jax.errors.JaxRuntimeError: {error}"""
        )

    def hbm_oom(self, allocations: Sequence[report.SimulatedAllocation]) -> None:
        """SimulatedProcess.hbm_oom as the job sees it."""
        used = sum(allocation.size for allocation in allocations)
        self.traceback(
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required"
            f" for HLO temporaries ({report.short(used)}) exceeds available HBM ({report.short(report.HBM_BYTES)})."
            f" HLO module: {report.MODULE}.\nSee https://openxla.org/xla/errors/error_1000 for more details."
        )
