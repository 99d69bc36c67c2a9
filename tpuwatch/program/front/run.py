"""A run: one program for one topology, its stages and its trials."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from . import change, graph, memory
from .errors import StopError
from .place import users_line
from .program import program_of
from .tpu import Tpu

if TYPE_CHECKING:
    from .program import Traceable

_MAX_TENSORS = 1500  # of the arguments, the largest


class Front:
    """One program for one topology."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self._out = os.fdopen(request["report"], "w", buffering=1)
        self._stage = "start"
        self._available: int | None = None

    def report(self, **message: Any) -> None:
        self._out.write(json.dumps(message) + "\n")

    def stage(self, name: str) -> None:
        self._stage = name
        self.report(stage=name)

    def run(self) -> int:
        """Do all trials; returns the exit status."""
        try:
            self._run()
        except StopError as stop:
            if stop.kernels is not None:
                self.report(kernels=stop.kernels)
            self.report(error={"kind": stop.kind, "stage": self._stage, "message": str(stop), "place": users_line()})
            return 1
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            traceback.print_exc()
            message = f"{type(error).__name__}: {error}"
            self.report(error={"kind": "program", "stage": self._stage, "message": message, "place": users_line()})
            return 1
        return 0

    def _run(self) -> None:
        self.stage("import")
        try:
            import jax
        except ImportError as error:
            lacking = " A program of PyTorch needs torchax, JAX and libtpu beside it" if find_spec("torch") else ""
            raise StopError("interpreter", f"{sys.executable} cannot import JAX: {error}.{lacking}") from error
        self.stage("topology")
        tpu = Tpu(jax, self.request["topology"], self.request["options"])
        self.stage("available")
        self._available = tpu.available()
        self.stage("program")
        sys.path.insert(0, os.getcwd())
        if self.request.get("changes"):
            change.prepare(jax)
        program = program_of(tpu, self.request)
        self.stage("ready")
        for line in sys.stdin:
            wanted = json.loads(line)
            if wanted.get("change") is None:
                self._trial(tpu, program, wanted["batch"])
            else:
                self._changed(tpu, program, wanted)

    def _changed(self, tpu: Tpu, program: Traceable, wanted: dict[str, Any]) -> None:
        """The same with the program changed: what cannot be changed so is said, and ends nothing."""
        try:
            with change.switched_on(tpu.jax, wanted["change"]):
                self._trial(tpu, program, wanted["batch"], wanted["change"])
        except Exception as error:
            trial = {"batch": wanted["batch"], "change": wanted["change"], "fits": False, "needed_bytes": None}
            trial.update(available_bytes=None, devices=len(tpu.devices), device_kind="", sharded=False)
            message = f"{type(error).__name__}: {error}"[:2000]
            self.report(trial={**trial, "trace_seconds": 0.0, "compile_seconds": 0.0, "problem": message})

    def _trial(self, tpu: Tpu, program: Traceable, batch: int | None, changed: str | None = None) -> None:
        """Compile with one batch (None: the program's own) and report what it needs."""
        self.stage("trace" if changed is None else f"trace with {changed}")
        started = time.monotonic()
        traced = program.traced(batch, changed)
        trial: dict[str, Any] = {"batch": batch, "change": changed, "trace_seconds": time.monotonic() - started}
        trial.update(devices=len(tpu.devices), device_kind=tpu.devices[0].device_kind)
        trial.update(sharded=program.sharded or changed in change.SPREAD)
        if traced.kernels is not None:
            self.report(kernels=traced.kernels)
        self.stage("count")
        trial.update(graph=_counted(traced.module), tensors=traced.tensors[:_MAX_TENSORS])
        ends = None if trial["sharded"] else _ends(traced.module)  # of what is spread the shares are not known yet
        self.report(compiling={**trial, "available_bytes": self._available}, ends=ends)
        self.stage("compile" if changed is None else f"compile with {changed}")
        started = time.monotonic()
        found: dict[str, Any]
        try:
            stats = traced.compile()
        except Exception as error:
            text = str(error)
            if not memory.is_refusal(text):
                raise
            found = {"fits": False, "message": text[:20000], "memory_space": memory.space(text)}
            found.update(needed_bytes=None, available_bytes=None)  # of the HBM
            if found["memory_space"] == "hbm":
                found["needed_bytes"] = memory.needed_bytes(text)
                found["available_bytes"] = memory.available_bytes(text) or self._available
        else:
            found = {"fits": True, **memory.figures(stats)}
        self.report(trial={**found, "compile_seconds": time.monotonic() - started})


def _ends(module: Any) -> dict[str, dict[str, int]] | None:
    try:
        return graph.ends(module)
    except Exception:  # as of `_counted`; the compiler says it at its end
        return None


def _counted(module: Any) -> dict[str, Any]:
    """What it computes; a module that cannot be counted is compiled all the same."""
    try:
        counted: dict[str, Any] = graph.summary(module)
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}"[:500]}
    return counted
