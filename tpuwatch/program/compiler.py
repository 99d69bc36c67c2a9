"""The child process that compiles the user's program, a trial at a time; where one need not end, a new one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import TpuwatchError, format_size
from tpuwatch.program.assignment import AssignmentLog
from tpuwatch.program.child import ChildError
from tpuwatch.program.layout import best_layout, parse_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tpuwatch.program.child import Child

UNWANTED: Final = "it was not asked for"


class NoAnswerError(TpuwatchError):
    """The child ended by itself, with or without a word of why."""

    def __init__(self, error: dict[str, Any] | None, status: int | None) -> None:
        super().__init__("the child process ended")
        self.error, self.status = error, status


class Compiler:
    """What `front/` does, as one call a trial."""

    def __init__(self, start: Callable[[], Child], logs: Path, on_stage: Callable[[str], None]) -> None:
        """`start` makes a child, `logs` is where libtpu writes in it, `on_stage` hears several times a second what is
        being done."""
        self._start, self._on_stage = start, on_stage
        self._child: Child | None = None
        self._reports: Iterator[Any] = iter(())
        self._start_seconds = self._sent = 0.0
        self._tried = ""
        self.log = AssignmentLog(logs)
        self.stage = "start"
        self.kernels: dict[str, Any] | None = None

    def trial(
        self, wanted: Mapping[str, Any], *, whole: bool, last: bool = False, parts: bool = False
    ) -> dict[str, Any]:
        """Compile what is wanted (batch, change) and return the report of it.

        Without `whole` it is not waited for when its memory suffices, if that takes longer than to start a new child,
        and if it is the `last` not at all. `parts`: only where the parts of its memory are known without its code.
        A child that is ended at a limit after that has an answer as well. The report then says so: `unfinished`.

        Raises ChildError and NoAnswerError.
        """
        child = self._child or self._begin()
        self.log.begin()
        self._sent = time.monotonic()
        child.send(wanted)
        known: dict[str, Any] = {}
        accepted: float | None = None
        ends: Mapping[str, Mapping[str, int]] | None = None
        try:
            for report in self._reports:
                self.log.look()
                self._hear(report)
                if report is None and self.log.accepted:
                    accepted = accepted or time.monotonic()
                    if (
                        not whole
                        and (not parts or ends)
                        and (last or time.monotonic() - accepted > self._start_seconds)
                    ):
                        return self._unfinished({**known, **_parts(self.log, ends if parts else None)}, UNWANTED)
                elif report is not None:
                    known.update(report.get("compiling", {}), **report.get("trial", {}))
                    ends = report.get("ends", ends)
                    if "trial" in report:
                        return self._finished(known)
        except ChildError as limit:
            if known and self.log.accepted:
                return self._unfinished(known, str(limit))
            raise
        raise NoAnswerError(None, child.process.returncode)

    def close(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.close()

    def _begin(self) -> Child:
        """A child that is ready for a trial."""
        started = time.monotonic()
        self.stage = "start"
        self.log.begin()  # what it has of another child is over
        child = self._child = self._start()
        self._reports = child.reports()
        for report in self._reports:
            self._hear(report)
            if report is not None and report.get("stage") == "ready":
                self._start_seconds = time.monotonic() - started
                return child
        raise NoAnswerError(None, child.process.returncode)

    def _hear(self, report: Any) -> None:
        """A report; None: time goes by."""
        if report is not None:
            self.stage = report.get("stage", self.stage)
            self.kernels = report.get("kernels", self.kernels)
            if "error" in report:
                raise NoAnswerError(report["error"], None)
        code = ""
        if report is None and self.log.accepted and self.log.needed_bytes is not None:
            code = f": {format_size(self.log.needed_bytes)} of HBM are assigned, making the code"
        self._on_stage(f"{self._tried}{self.stage}{code}")

    def _finished(self, trial: dict[str, Any]) -> dict[str, Any]:
        if (
            not trial["fits"]
            and trial.get("memory_space", "hbm") == "hbm"
            and self.log.needed_bytes is not None
            and not self.log.accepted
        ):
            trial["needed_bytes"] = self.log.needed_bytes  # the message has it rounded
        self._tried = f"{'fits' if trial['fits'] else 'does not fit'} with batch {trial['batch']}; "
        return trial

    def _unfinished(self, known: dict[str, Any], why: str) -> dict[str, Any]:
        self.close()
        spent = time.monotonic() - self._sent
        figures = {"fits": True, "needed_bytes": self.log.needed_bytes, "compile_seconds": spent}
        return self._finished({**known, **figures, "unfinished": why})


def _parts(log: AssignmentLog, ends: Mapping[str, Mapping[str, int]] | None) -> dict[str, int]:
    """The parts of the memory that is assigned: arguments and results by their layout, and what is left."""
    if ends is None or log.needed_bytes is None:
        return {}
    sizes = {name: sum(_padded(shape) * count for shape, count in shapes.items()) for name, shapes in ends.items()}
    temporaries = max(0, log.needed_bytes - sizes["arguments"] - sizes["outputs"] + sizes["shared"])
    return {"temporaries_bytes": temporaries, **{f"{name}_bytes": size for name, size in sizes.items()}}


def _padded(shape: str) -> int:
    return best_layout(parse_tensor(shape)[0]).padded
