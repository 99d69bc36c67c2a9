"""Compiles a program for a TPU that is not here: JAX, Keras on JAX, a tf.function, PyTorch by torchax, or StableHLO.

The interpreter that has JAX runs this file by its path: it imports nothing of tpuwatch, and needs Python 3.10 and
JAX 0.4.31 or newer. Its first argument is a JSON object that says what to compile; standard input has a JSON object for
each trial, a line each. It writes a JSON object a line to the descriptor `report`: {"stage": NAME} as it goes on
("ready" when it waits for a trial), {"kernels": {...}} for the ops of a TensorFlow graph, {"compiling": {...}} with
what is known of a trial before it is compiled, {"trial": {...}} with the rest, {"error": {...}} when it ends for one.
`graph.py`, `change.py` and `torch_step.py` beside it are parts of it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import inspect
import json
import os
import re
import signal
import sys
import time
import traceback
from typing import Any

_AVAILABLE = re.compile(r"exceeds available HBM \(([0-9.]+)([KMGT])\)|of ([0-9.]+)([KMGT]) hbm", re.IGNORECASE)
_NEEDED = re.compile(r"\(([0-9.]+)([KMGT])\) exceeds available HBM|Used ([0-9.]+)([KMGT]) of", re.IGNORECASE)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_HERE = os.path.dirname(os.path.abspath(__file__))
_SHAPE = re.compile(r"(?P<type>[a-z]+[0-9]*)\[(?P<sides>[0-9, ]*)\]")
_TYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "pred": "bool", "bool": "bool"}
_STABLEHLO = (".mlir", ".stablehlo", ".mlirbc")
_PORTABLE = re.compile(rb"ML\xefR.StableHLO_v(?P<version>[0-9.]+)\0", re.DOTALL)  # the head of its bytecode
_SIDE = 1 << 20  # of a matrix that no TPU has room for
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_XLA = "XLA_CPU_JIT"
_MAX_TENSORS = 1500  # of the arguments, the largest


def _part(name: str) -> Any:
    """A file beside this one, under a name that no module of the user's has."""
    spec = importlib.util.spec_from_file_location(f"tpuwatch_front_{name}", os.path.join(_HERE, f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


change, graph, torch_step = _part("change"), _part("graph"), _part("torch_step")


class StopError(Exception):
    """Ends the run with a reason: what `kind` of thing went wrong, and in which words."""

    def __init__(self, kind: str, message: str, kernels: Any = None) -> None:
        super().__init__(message)
        self.kind, self.kernels = kind, kernels


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
            self.report(error={"kind": stop.kind, "stage": self._stage, "message": str(stop), "place": _users_line()})
            return 1
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            traceback.print_exc()
            message = f"{type(error).__name__}: {error}"
            self.report(error={"kind": "program", "stage": self._stage, "message": message, "place": _users_line()})
            return 1
        return 0

    def _run(self) -> None:
        self.stage("import")
        try:
            import jax
        except ImportError as error:
            lacking = " A program of PyTorch needs torchax, JAX and libtpu beside it" if _has("torch") else ""
            raise StopError("interpreter", f"{sys.executable} cannot import JAX: {error}.{lacking}") from error
        self.stage("topology")
        tpu = Tpu(jax, self.request["topology"], self.request["options"])
        self.stage("available")
        self._available = tpu.available()
        self.stage("program")
        sys.path.insert(0, os.getcwd())
        if self.request.get("changes"):
            change.prepare(jax)
        program = _program(tpu, self.request)
        self.stage("ready")
        for line in sys.stdin:
            wanted = json.loads(line)
            if wanted.get("change") is None:
                self._trial(tpu, program, wanted["batch"])
            else:
                self._changed(tpu, program, wanted)

    def _changed(self, tpu: Tpu, program: Any, wanted: dict[str, Any]) -> None:
        """The same with the program changed: what cannot be changed so is said, and ends nothing."""
        try:
            with change.switched_on(tpu.jax, wanted["change"]):
                self._trial(tpu, program, wanted["batch"], wanted["change"])
        except Exception as error:
            trial = {"batch": wanted["batch"], "change": wanted["change"], "fits": False, "needed_bytes": None}
            trial.update(available_bytes=None, devices=len(tpu.devices), device_kind="", sharded=False)
            message = f"{type(error).__name__}: {error}"[:2000]
            self.report(trial={**trial, "trace_seconds": 0.0, "compile_seconds": 0.0, "problem": message})

    def _trial(self, tpu: Tpu, program: Any, batch: int | None, changed: str | None = None) -> None:
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
        self.report(compiling={**trial, "available_bytes": self._available})
        self.stage("compile" if changed is None else f"compile with {changed}")
        started = time.monotonic()
        found: dict[str, Any]
        try:
            stats = traced.compile()
        except Exception as error:
            text = str(error)
            if "RESOURCE_EXHAUSTED" not in text and "Ran out of memory" not in text:
                raise
            found = {"fits": False, "message": text[:20000], "needed_bytes": _bytes(_NEEDED, text)}
            found["available_bytes"] = _bytes(_AVAILABLE, text) or self._available
        else:
            found = {"fits": True, **_memory(stats)}
        self.report(trial={**found, "compile_seconds": time.monotonic() - started})


class Traced:
    """A program ready to compile: its StableHLO, the function that compiles it, and its arguments, largest first."""

    def __init__(self, module: Any, compile_it: Any, tensors: list[dict[str, Any]], kernels: Any = None) -> None:
        self.module = module
        self.compile = compile_it
        self.tensors = sorted(tensors, key=lambda one: -one["bytes"])
        self.kernels = kernels  # of a TensorFlow graph: how often each op, and those that XLA has no kernel for


class Tpu:
    """The devices of a topology, and what the compiler does for them."""

    def __init__(self, jax: Any, topology: str, options: dict[str, Any]) -> None:
        from jax.experimental import topologies

        try:
            found = topologies.get_topology_desc(platform="tpu", topology_name=topology, **options)
        except Exception as error:
            raise StopError("topology", str(error).strip().splitlines()[0]) from error
        self.jax = jax
        self.devices = found.devices
        self.mesh = jax.sharding.Mesh(self.devices, ("data",))
        self.one = jax.sharding.SingleDeviceSharding(self.devices[0])
        self.every = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec())

    def abstract(self, tree: Any, placed: Any) -> Any:
        """The shapes of a tree of arrays, each where its own sharding says, or without one for this TPU as `placed`."""

        def of(leaf: Any) -> Any:
            if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
                return leaf
            own = getattr(leaf, "sharding", None)
            where = own if own is not None and set(own.device_set) <= set(self.devices) else placed
            key = self.jax.dtypes.issubdtype(leaf.dtype, self.jax.dtypes.extended)  # of random numbers
            kind = leaf.dtype if key else self.jax.numpy.dtype(leaf.dtype)
            return self.jax.ShapeDtypeStruct(tuple(leaf.shape), kind, sharding=where)

        return self.jax.tree_util.tree_map(of, tree)

    def tensors(self, tree: Any, part: str | None = None, other: Any = None) -> list[dict[str, Any]]:
        """The arrays of a tree of shapes. `part` is what they are to the program; `other` the same tree of another
        batch: `batch_side` is the side that differs."""
        flat = self.jax.tree_util.tree_flatten_with_path(tree)[0]
        others = self.jax.tree_util.tree_leaves(other) if other is not None else []
        found = []
        for place, (path, leaf) in enumerate(flat):
            if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
                continue
            shape, sharding = tuple(leaf.shape), getattr(leaf, "sharding", None)
            local = sharding.shard_shape(shape) if sharding is not None else shape
            size = leaf.dtype.itemsize
            for side in local:
                size *= side
            one = {"path": self.jax.tree_util.keystr(path), "dtype": str(leaf.dtype), "bytes": size}
            found.append({**one, "shape": list(local), "part": part, "batch_side": _differs(leaf, others, place, flat)})
        return found

    def compiler(self, function: Any, positional: Any, named: Any) -> Any:
        """A traced function's StableHLO, and what compiles it and returns the compiler's figures."""
        if _is_nnx(function):
            lowered = function.lower(*positional, **named).lowered
        else:
            lowered = function.trace(*positional, **named).lower(lowering_platforms=("tpu",))
        return lowered.compiler_ir("stablehlo").operation, lambda: lowered.compile().memory_analysis()

    def stablehlo_compiler(self, module: Any) -> Any:
        """The same for a module of StableHLO, text or bytecode, on one device.

        JAX has no public way for it; tests/proof/preflight holds this one.
        """
        import numpy as np
        from jax._src.compiler import get_compile_options
        from jax._src.interpreters.mlir import make_ir_context
        from jaxlib import _jax
        from jaxlib.mlir import ir

        device = self.devices[0]
        with make_ir_context() as context:
            parsed = _parsed(ir, context, module)
            _without_copies(parsed.operation)
        options = get_compile_options(
            num_replicas=1, num_partitions=1, device_assignment=np.array([[device.id]], dtype=int)
        )
        client = device.client
        devices = _jax.DeviceList((device,))
        return parsed.operation, lambda: client.compile(parsed, devices, options).get_compiled_memory_stats()

    def traced(self, compiler: Any, tensors: Any, changed: str | None, kernels: Any = None) -> Traced:
        """A program as it is, or with bfloat16 in the place of float32, which is a change of its StableHLO."""
        module, compile_it = compiler
        if changed == change.BFLOAT16:
            module, compile_it = self.stablehlo_compiler(change.in_bfloat16(module))
        return Traced(module, compile_it, tensors, kernels)

    def available(self) -> int | None:
        """The HBM of a device that programs get, by asking the compiler for too much."""
        large = self.jax.ShapeDtypeStruct((_SIDE, _SIDE), self.jax.numpy.float32, sharding=self.one)
        try:
            self.compiler(self.jax.jit(lambda value: value + 1), (large,), {})[1]()
        except Exception as error:
            return _bytes(_AVAILABLE, str(error))
        return None


class Arguments:
    """What a program is called with: from the factory that the user named, or from shapes."""

    def __init__(self, tpu: Tpu, request: dict[str, Any]) -> None:
        self.tpu = tpu
        self.name = request["arguments"]
        self.shapes = request["shapes"]
        self.factory = _named(self.name) if self.name else None
        self.given = bool(self.name or self.shapes)
        self.sharded = False  # whether the factory spreads them over the devices

    def of(self, batch: int | None) -> Any:
        """A tuple or a dict of shapes."""
        if self.factory is None:
            made: Any = tuple(_shape(self.tpu.jax, text) for text in self.shapes)
        else:
            offered = {"batch": batch, "mesh": self.tpu.mesh, "devices": list(self.tpu.devices)}
            taken = inspect.signature(self.factory).parameters
            anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
            if batch is not None and "batch" not in taken and not anything:
                raise StopError("usage", f"{self.name} takes no argument named batch")
            wanted = offered if anything else taken
            chosen = {name: value for name, value in offered.items() if name in wanted and value is not None}
            self.sharded = "mesh" in chosen or "devices" in chosen
            made = self._made(chosen)
            if made is None:
                raise StopError("usage", f"{self.name} returns no arguments, but None")
        return made if isinstance(made, (tuple, list, dict)) else (made,)

    def of_another(self, batch: int | None) -> Any:
        """The same with a batch of twice the size: the sides that differ are the batch. None without a batch."""
        if batch is None or self.factory is None:
            return None
        try:
            return self.of(2 * batch)
        except Exception:  # it may refuse any batch but some
            return None

    def _made(self, chosen: dict[str, Any]) -> Any:
        """What the factory returns, without the memory for its arrays where it can be had so."""
        factory: Any = self.factory
        if self.sharded:
            return factory(**chosen)
        returned: list[Any] = []

        def make() -> Any:
            returned.append(factory(**chosen))
            return returned[0]

        try:
            with torch_step.without_values():
                return self.tpu.jax.eval_shape(make)
        except Exception:  # it returns shapes already or what is PyTorch's, or looks at its own values
            return returned[0] if torch_step.holds_torch(returned) else factory(**chosen)


class JaxProgram:
    """A function, jitted or not."""

    def __init__(self, tpu: Tpu, function: Any, arguments: Arguments, donate: list[int]) -> None:
        self._tpu = tpu
        self._function, self._donate = function, tuple(donate)
        self._is_jitted = _is_nnx(function) or callable(getattr(function, "trace", None))
        self._arguments = arguments

    @property
    def sharded(self) -> bool:
        return self._arguments.sharded

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        tpu = self._tpu
        given, other = self._arguments.of(batch), self._arguments.of_another(batch)
        if torch_step.holds_torch(given):
            return TorchProgram(tpu, self._function, self._arguments).traced(batch, changed)
        placed = tpu.every if self._arguments.sharded else tpu.one
        if changed in change.SPREAD:
            given = change.spread(tpu.jax, tpu.mesh, given, other, weights=changed == change.SPREAD_ALL)
        given = tpu.abstract(given, placed)
        function = self._function
        if not self._is_jitted:
            given, function = self._jitted(given)
        positional, named = ((), given) if isinstance(given, dict) else (tuple(given), {})
        return tpu.traced(tpu.compiler(function, positional, named), tpu.tensors(given, None, other), changed)

    def _jitted(self, given: Any) -> Any:
        """Those of its arguments that `jax.jit` takes, and the function of them, jitted: what is no array, such as the
        name of a layer's activation, is fixed, and not returned."""
        tree_map, plain = self._tpu.jax.tree_util.tree_map, self._function
        taken = tree_map(lambda leaf: leaf if _is_array(leaf) else None, given)
        fixed = tree_map(lambda leaf: None if _is_array(leaf) else leaf, given)

        @functools.wraps(plain)  # JAX looks for its signature, name and place
        def call(*positional: Any, **named: Any) -> Any:
            arrays = named or (list(positional) if isinstance(given, list) else positional)
            whole = tree_map(lambda a, b: b if a is None else a, arrays, fixed, is_leaf=lambda leaf: leaf is None)
            made = plain(**whole) if named else plain(*whole)
            return tree_map(lambda leaf: leaf if _is_array(leaf) else None, made)

        return taken, self._tpu.jax.jit(call, donate_argnums=self._donate)


class KerasProgram:
    """A Keras model: the training step that `fit` runs if it is compiled, else the forward pass."""

    sharded = False

    def __init__(self, tpu: Tpu, model: Any, arguments: Arguments) -> None:
        import keras

        if keras.backend.backend() != "jax":
            raise StopError(
                "usage", f"Keras runs on {keras.backend.backend()} here: only on JAX it can be compiled without a TPU"
            )
        self._tpu, self._model, self._arguments = tpu, model, arguments

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        jax, model, place = self._tpu.jax, self._model, self._tpu.one
        if changed in change.SPREAD:
            raise StopError("usage", "a Keras model is compiled for one device")
        data = self._data(batch)
        trained = getattr(model, "optimizer", None) is not None
        if trained:
            model._symbolic_build(data_batch=data)  # noqa: SLF001 (as fit does; held by tests/proof/preflight)
            state = [model.trainable_variables, model.non_trainable_variables]
            state += [model.optimizer.variables, model.metrics_variables]
            step, given = model.train_step, (state, data)
        else:
            state = [model.trainable_variables, model.non_trainable_variables]
            step, given = model.stateless_call, (*state, data[0])
        jitted = jax.jit(step, donate_argnums=0 if trained else ())
        tensors = self._tpu.tensors(data if trained else data[0], "inputs")
        for part, variables in zip(("weights", "state", "optimizer", "state"), state, strict=False):
            tensors += [
                {**one, "path": variable.path} for one, variable in _named_variables(self._tpu, variables, part)
            ]
        given = self._tpu.abstract(given, place)
        return self._tpu.traced(self._tpu.compiler(jitted, given, {}), tensors, changed)

    def _data(self, batch: int | None) -> Any:
        """Inputs, and targets where there is a loss: as the user gives them, or as the model's own shapes say."""
        jax = self._tpu.jax
        if self._arguments.given:
            return tuple(self._tpu.abstract(self._arguments.of(batch), self._tpu.one))
        inputs = getattr(self._model, "inputs", None)
        if not inputs:
            raise StopError(
                "usage", "this model has no shapes of its own: name a function with --args that returns (x, y)"
            )

        def shape(tensor: Any, dtype: str | None = None) -> Any:
            sides = [(batch or 1) if place == 0 else side for place, side in enumerate(tensor.shape)]
            if None in sides:
                open_shape = f"the shape {tuple(tensor.shape)} is open: give the model all sides but the batch, or name"
                raise StopError("usage", f"{open_shape} a function with --args that returns (x, y)")
            return jax.ShapeDtypeStruct(tuple(sides), jax.numpy.dtype(dtype or tensor.dtype))

        x = [shape(tensor) for tensor in inputs]
        y = [shape(tensor) for tensor in self._model.outputs]
        if "sparse" in str(getattr(self._model, "loss", "")).lower():
            y = [jax.ShapeDtypeStruct(one.shape[:-1], jax.numpy.dtype("int32")) for one in y]
        return (x[0] if len(x) == 1 else x, y[0] if len(y) == 1 else y)


class TensorFlowProgram:
    """A tf.function with static shapes, on one device."""

    sharded = False

    def __init__(self, tpu: Tpu, function: Any, arguments: Arguments) -> None:
        import tensorflow as tf

        self._tpu, self._arguments = tpu, arguments
        self._signature = function.input_signature
        self._function = tf.function(
            function.python_function, jit_compile=True, input_signature=self._signature, autograph=True
        )
        self._tensorflow = tf

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        if changed not in (None, change.BFLOAT16):
            raise StopError("usage", "a tf.function cannot be changed so")
        given = self._arguments.of(batch) if self._arguments.given else self._signature
        if given is None:
            raise StopError(
                "usage", "this tf.function has no input_signature: give its arguments with --args or --shape"
            )
        specs = [self._tensorflow.TensorSpec(one.shape, one.dtype) for one in given]
        if any(None in tuple(spec.shape) for spec in specs):
            raise StopError("usage", "a TPU needs static shapes: give all sides with --args or --shape")
        concrete = self._function.get_concrete_function(*specs).graph
        tensors = [self._tensor(variable.name, variable, "weights") for variable in concrete.variables]
        tensors += [self._tensor(spec.name or "", spec, "inputs") for spec in specs]
        try:
            module = self._function.experimental_get_compiler_ir(*specs)(stage="stablehlo_serialized")
        except Exception as error:
            kernels = _kernels(concrete)
            lacking = ", ".join(kernels["without"])
            if not lacking:
                raise
            raise StopError("program", f"XLA has no kernel for {lacking}: {str(error)[:1000]}", kernels) from error
        kernels = _kernels(concrete)
        return self._tpu.traced(self._tpu.stablehlo_compiler(module), tensors, changed, kernels)

    def _tensor(self, path: str, spec: Any, part: str) -> dict[str, Any]:
        sides = [int(side) for side in spec.shape]
        size = spec.dtype.size
        for side in sides:
            size *= side
        one = {"path": path, "dtype": spec.dtype.name, "bytes": size, "shape": sides}
        return {**one, "part": part, "batch_side": None}


class TorchProgram:
    """A module of PyTorch, or a function that is called with modules, optimizers and tensors, on one device."""

    sharded = False

    def __init__(self, tpu: Tpu, function: Any, arguments: Arguments) -> None:
        if not _has("torchax"):
            raise StopError(
                "interpreter",
                f"{sys.executable} has PyTorch without torchax, by which it is compiled here: install torchax there, "
                "or export the program to StableHLO and give the file",
            )
        self._tpu, self._function, self._arguments = tpu, function, arguments

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        if changed not in (None, change.BFLOAT16):
            raise StopError("usage", "a program of PyTorch cannot be changed so")
        tpu, jax = self._tpu, self._tpu.jax
        other = self._arguments.of_another(batch)
        try:
            step = torch_step.TorchStep(self._function, self._arguments.of(batch))
        except torch_step.ValueNeededError as error:
            raise StopError("program", str(error)) from error
        given = torch_step.tensors_of(step.given)
        others = [] if other is None else torch_step.tensors_of(other)
        sides = {id(one): _differs(one, others, place, given) for place, one in enumerate(given)}
        shapes = [torch_step.shape_of(jax, one.tensor, tpu.one) for one in step.lifted]
        tensors = [
            {**tpu.tensors(shape, one.part)[0], "path": one.path, "batch_side": sides.get(id(one.tensor))}
            for one, shape in zip(step.lifted, shapes, strict=True)
        ]
        jitted = jax.jit(step, donate_argnums=step.donated)
        return tpu.traced(tpu.compiler(jitted, shapes, {}), tensors, changed)


class StablehloProgram:
    """A file of StableHLO."""

    sharded = False

    def __init__(self, tpu: Tpu, path: str) -> None:
        self._tpu = tpu
        try:
            with open(path, "rb") as file:
                self._module = file.read()
        except OSError as error:
            raise StopError("usage", f"{path}: {error.strerror}") from error

    def traced(self, batch: int | None, changed: str | None = None) -> Traced:
        if batch is not None:
            raise StopError("usage", "a StableHLO file has the shapes that it has: leave out --batch and --max-batch")
        if changed not in (None, change.BFLOAT16):
            raise StopError("usage", "a StableHLO file cannot be changed so")
        compiler = self._tpu.stablehlo_compiler(self._module)
        return self._tpu.traced(compiler, graph.arguments(compiler[0]), changed)


def _program(tpu: Tpu, request: dict[str, Any]) -> Any:
    """The program that is named, by what it is."""
    text = request["function"]
    if text.endswith(_STABLEHLO):
        return StablehloProgram(tpu, text)
    found = _named(text)
    arguments = Arguments(tpu, request)
    torch_step.hide_frames()
    if inspect.isfunction(found) and not inspect.signature(found).parameters:
        with torch_step.without_values():
            found = found()  # it makes a model
    if torch_step.holds_torch(found):
        return TorchProgram(tpu, found, arguments)
    if hasattr(found, "stateless_call"):
        return KerasProgram(tpu, found, arguments)
    if hasattr(found, "experimental_get_compiler_ir"):
        return TensorFlowProgram(tpu, found, arguments)
    if not callable(found):
        raise StopError("usage", f"{text} is neither a function nor a model of Keras or PyTorch")
    if not arguments.given and _takes(found):
        raise StopError("usage", f"{text} takes {', '.join(_takes(found))}: give its arguments with --args or --shape")
    return JaxProgram(tpu, found, arguments, request["donate"])


def _is_nnx(function: Any) -> bool:
    """Whether it is what `flax.nnx.jit` returns: it has no trace of its own, and returns what it changes in place."""
    return hasattr(function, "jitted_fn")


def _is_array(leaf: Any) -> bool:
    """Whether `jax.jit` takes it."""
    return isinstance(leaf, (bool, int, float, complex)) or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _takes(function: Any) -> list[str]:
    """The names of the arguments that it cannot do without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    each = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in parameters if one.default is one.empty and one.kind not in each]


def _counted(module: Any) -> dict[str, Any]:
    """What it computes; a module that cannot be counted is compiled all the same."""
    try:
        counted: dict[str, Any] = graph.summary(module)
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}"[:500]}
    return counted


def _differs(leaf: Any, others: list[Any], place: int, flat: list[Any]) -> int | None:
    """The side of a leaf that is another with another batch."""
    if len(others) != len(flat) or not hasattr(others[place], "shape"):
        return None
    pairs = list(zip(leaf.shape, others[place].shape, strict=False))
    return next((side for side, (one, two) in enumerate(pairs) if one != two), None)


def _named_variables(tpu: Tpu, variables: Any, part: str) -> list[tuple[dict[str, Any], Any]]:
    found = [(tpu.tensors(tpu.jax.ShapeDtypeStruct(tuple(one.shape), one.dtype), part), one) for one in variables]
    return [(tensors[0], one) for tensors, one in found if tensors]


def _kernels(concrete: Any) -> dict[str, Any]:
    """The ops of a TensorFlow graph and its functions by their number, and those for which XLA has no kernel.

    The stock wheel registers none for TPUs; those for XLA on a CPU are of the same ops, and are registered when
    something is compiled for the first time.
    """
    from tensorflow.python.framework import kernels

    definition = concrete.as_graph_def()
    nodes = [*definition.node, *(node for body in definition.library.function for node in body.node_def)]
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.op] = counts.get(node.op, 0) + 1
    without = []
    for name in sorted(counts):
        registered = kernels.get_registered_kernels_for_op(name).kernel
        if registered and name != "Placeholder" and all(one.device_type != _XLA for one in registered):
            without.append(name)
    return {"counts": counts, "without": without}


def _parsed(ir: Any, context: Any, module: Any) -> Any:
    """A module of StableHLO: text, bytecode, or the portable artifact that exporters write."""
    from jaxlib.mlir.dialects import stablehlo

    portable = isinstance(module, bytes) and _PORTABLE.match(module)
    try:
        parsed = stablehlo.deserialize_portable_artifact(context, module) if portable else ir.Module.parse(module)
    except Exception as error:
        if portable:
            said, known = portable["version"].decode(), stablehlo.get_current_version()
            message = f"the StableHLO {said} of this file is none that the JAX here can read (it has {known})"
        else:
            message = f"this is no StableHLO: {str(error).strip()[:300]}"
        raise StopError("usage", message) from error
    main = [one for one in parsed.body.operations if "sym_name" in one.attributes and one.name.value == "main"]
    if not main:
        raise StopError("usage", "this StableHLO has no function named main")
    if any("?" in str(one) for one in main[0].type.inputs):
        raise StopError(
            "usage", "a TPU needs static shapes: the main function of this StableHLO has an argument without"
        )
    return parsed


def _without_copies(operation: Any) -> None:
    """Take `mhlo.copy` out, which TensorFlow leaves in its StableHLO and the compiler refuses: a value is its copy."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                if inner.operation.name == "mhlo.copy":
                    inner.operation.results[0].replace_all_uses_with(inner.operation.operands[0])
                    inner.operation.erase()
                else:
                    _without_copies(inner.operation)


def _memory(stats: Any) -> dict[str, int]:
    """The compiler's own figures, in bytes of one device."""
    figures = {
        "arguments_bytes": stats.argument_size_in_bytes,
        "outputs_bytes": stats.output_size_in_bytes,
        "shared_bytes": stats.alias_size_in_bytes,
        "temporaries_bytes": stats.temp_size_in_bytes,
        "code_bytes": stats.generated_code_size_in_bytes,
    }
    # Not the compiler's peak_memory_in_bytes: that counts what is moved to the chip's own memory a second time.
    figures["needed_bytes"] = sum(figures.values()) - 2 * figures["shared_bytes"]
    return figures


def _named(text: str) -> Any:
    """The object that "module:name" names."""
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
    """The innermost line of the traceback of the exception, or of its cause, that is the user's: below the directory in
    which it runs."""
    here = os.getcwd() + os.sep
    error = sys.exc_info()[1]
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        files = [(f, os.path.abspath(f.filename)) for f in frames if "site-packages" not in f.filename]
        own = [f for f, path in files if path.startswith(here) and os.path.dirname(path) != _HERE]
        if own:
            return {"file": own[-1].filename, "line": own[-1].lineno}
        error = error.__cause__
    return None


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _end_with(parent: int | None) -> None:
    """Have the kernel end this process when the one that started it dies, however that dies: a compilation that nobody
    waits for would go on for minutes, and take its memory."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:  # it is dead already
        os._exit(1)


if __name__ == "__main__":
    sys.path.pop(0)  # this file's own directory
    asked = json.loads(sys.argv[1])
    _end_with(asked.get("parent"))
    sys.exit(Front(asked).run())
