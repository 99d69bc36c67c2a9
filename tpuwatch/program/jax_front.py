"""Compiles a JAX program for a TPU that is not here.

The interpreter that has JAX runs this file by its path: it imports nothing of tpuwatch, and needs Python 3.10 and
JAX 0.4.31 or newer. Its first argument is a JSON object that says what to compile; standard input has a JSON object for
each trial, a line each. It writes a JSON object a line to the descriptor `report`: {"stage": NAME} as it goes on,
{"trial": {...}} for each trial, {"error": {...}} when it ends for one.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
import time
import traceback
from typing import Any

_AVAILABLE = re.compile(r"exceeds available HBM \(([0-9.]+)([KMGT])\)|of ([0-9.]+)([KMGT]) hbm", re.IGNORECASE)
_NEEDED = re.compile(r"\(([0-9.]+)([KMGT])\) exceeds available HBM|Used ([0-9.]+)([KMGT]) of", re.IGNORECASE)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SHAPE = re.compile(r"(?P<type>[a-z]+[0-9]*)\[(?P<sides>[0-9, ]*)\]")
_TYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "pred": "bool", "bool": "bool"}


class StopError(Exception):
    """Ends the run with a reason: what `kind` of thing went wrong, and in which words."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Front:
    """One program for one topology."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self._out = os.fdopen(request["report"], "w", buffering=1)
        self._stage = "start"

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
            self.report(error={"kind": stop.kind, "stage": self._stage, "message": str(stop), "place": _users_line()})
            return 1
        except Exception as error:  # the user's code may raise anything
            traceback.print_exc()
            message = f"{type(error).__name__}: {error}"
            self.report(error={"kind": "program", "stage": self._stage, "message": message, "place": _users_line()})
            return 1
        return 0

    def _run(self) -> None:
        self.stage("import")
        try:
            import jax
            from jax.experimental import topologies
        except ImportError as error:
            raise StopError("interpreter", f"{sys.executable} cannot import JAX: {error}") from error
        self.jax = jax
        self.stage("topology")
        try:
            topology = topologies.get_topology_desc(
                platform="tpu", topology_name=self.request["topology"], **self.request["options"]
            )
        except Exception as error:
            raise StopError("topology", str(error).strip().splitlines()[0]) from error
        self.devices = topology.devices
        self.mesh = jax.sharding.Mesh(self.devices, ("data",))
        self.stage("program")
        sys.path.insert(0, os.getcwd())
        function = _named(self.request["function"])
        factory = _named(self.request["arguments"]) if self.request["arguments"] else None
        if not callable(getattr(function, "trace", None)):
            function = jax.jit(function, donate_argnums=tuple(self.request["donate"]))
        for line in sys.stdin:
            self._trial(function, factory, json.loads(line)["batch"])

    def _trial(self, function: Any, factory: Any, batch: int | None) -> None:
        """Compile with one batch (None: the factory's own) and report what it needs."""
        self.stage("arguments")
        sharded, given = self._arguments(factory, batch)
        positional, named = (given, {}) if isinstance(given, (tuple, list)) else ((), given)
        self.stage("trace")
        started = time.monotonic()
        lowered = function.trace(*positional, **named).lower(lowering_platforms=("tpu",))
        trial: dict[str, Any] = {"batch": batch, "trace_seconds": time.monotonic() - started, "sharded": sharded}
        trial.update(devices=len(self.devices), device_kind=self.devices[0].device_kind)
        self.stage("compile")
        started = time.monotonic()
        try:
            compiled = lowered.compile()
        except Exception as error:
            text = str(error)
            if "RESOURCE_EXHAUSTED" not in text and "Ran out of memory" not in text:
                raise
            trial.update(fits=False, message=text[:20000], needed_bytes=_bytes(_NEEDED, text))
            trial["available_bytes"] = _bytes(_AVAILABLE, text)
        else:
            trial.update(fits=True, **_memory(compiled))
        trial["compile_seconds"] = time.monotonic() - started
        if trial.get("available_bytes") is None:
            trial["available_bytes"] = self._available()
        self.report(trial=trial)

    def _arguments(self, factory: Any, batch: int | None) -> tuple[bool, Any]:
        """Whether the factory spreads its arguments over the devices, and the arguments as shapes."""
        jax = self.jax
        if factory is None:
            given, sharded = tuple(_shape(jax, text) for text in self.request["shapes"]), False
        else:
            offered = {"batch": batch, "mesh": self.mesh, "devices": list(self.devices)}
            taken = inspect.signature(factory).parameters
            anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
            if batch is not None and "batch" not in taken and not anything:
                raise StopError("usage", f"{self.request['arguments']} takes no argument named batch")
            chosen = {
                name: value for name, value in offered.items() if (name in taken or anything) and value is not None
            }
            sharded = "mesh" in chosen or "devices" in chosen
            given = self._called(factory, chosen, sharded)
        if not isinstance(given, (tuple, list, dict)):
            given = (given,)
        only = jax.sharding.SingleDeviceSharding(self.devices[0])
        every = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec()) if sharded else only

        def abstract(leaf: Any) -> Any:
            if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
                return leaf
            own = getattr(leaf, "sharding", None)
            placed = own if own is not None and set(own.device_set) <= set(self.devices) else every
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placed)

        return sharded, jax.tree_util.tree_map(abstract, given)

    def _called(self, factory: Any, chosen: dict[str, Any], sharded: bool) -> Any:
        """What the factory returns, without the memory for its arrays where it can be had so."""
        if sharded:
            return factory(**chosen)
        try:
            return self.jax.eval_shape(lambda: factory(**chosen))
        except Exception:  # it returns shapes already, or looks at its own values
            return factory(**chosen)

    def _available(self) -> int | None:
        """The HBM of a device that programs get, by asking the compiler for too much."""
        jax, side = self.jax, 1 << 20
        self.stage("available")
        only = jax.sharding.SingleDeviceSharding(self.devices[0])
        large = jax.ShapeDtypeStruct((side, side), jax.numpy.float32, sharding=only)
        try:
            jax.jit(lambda value: value + 1).trace(large).lower(lowering_platforms=("tpu",)).compile()
        except Exception as error:
            return _bytes(_AVAILABLE, str(error))
        return None


def _memory(compiled: Any) -> dict[str, int]:
    """The compiler's own figures, in bytes of one device."""
    stats = compiled.memory_analysis()
    figures = {
        "arguments_bytes": stats.argument_size_in_bytes,
        "outputs_bytes": stats.output_size_in_bytes,
        "shared_bytes": stats.alias_size_in_bytes,
        "temporaries_bytes": stats.temp_size_in_bytes,
        "code_bytes": stats.generated_code_size_in_bytes,
    }
    total = sum(figures.values()) - 2 * figures["shared_bytes"]
    figures["needed_bytes"] = max(total, getattr(stats, "peak_memory_in_bytes", 0) or 0)
    return figures


def _named(text: str) -> Any:
    """The object that "module:name" names."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise StopError("usage", f"{text!r}: give it as module:function")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module and not module.startswith(f"{error.name}."):
            raise
        raise StopError("usage", f"there is no module {module!r} in {os.getcwd()} or for {sys.executable}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise StopError("usage", f"{module} has no {name!r}")
        found = getattr(found, part)
    return found


def _shape(jax: Any, text: str) -> Any:
    """The argument that "f32[8,128]" stands for."""
    found = _SHAPE.fullmatch(text.replace(" ", ""))
    name = found["type"] if found else ""
    name = _TYPES.get(name) or re.sub(r"^u(?=[0-9])", "uint", re.sub(r"^[si](?=[0-9])", "int", name))
    try:
        kind = jax.numpy.dtype(name)
    except TypeError:
        found = None
    if not found:
        raise StopError("usage", f"{text!r} is no shape: give it as f32[8,128], bf16[64,1024] or s32[]")
    return jax.ShapeDtypeStruct(tuple(int(side) for side in found["sides"].split(",") if side), kind)


def _bytes(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    if found is None:
        return None
    number, unit = [one for one in found.groups() if one is not None]
    return int(float(number) * _UNITS[unit.upper()])


def _users_line() -> dict[str, Any] | None:
    """The innermost line of the exception's traceback that is the user's: below the directory in which it runs."""
    here = os.getcwd() + os.sep
    frames = traceback.extract_tb(sys.exc_info()[2])
    own = [f for f in frames if os.path.abspath(f.filename).startswith(here) and "site-packages" not in f.filename]
    return {"file": own[-1].filename, "line": own[-1].lineno} if own else None


if __name__ == "__main__":
    sys.path.pop(0)  # this file's own directory
    sys.exit(Front(json.loads(sys.argv[1])).run())
