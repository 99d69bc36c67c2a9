"""Has a TPU, or the CPU, compute a value that is known beforehand, stage by stage, in JAX, TensorFlow or PyTorch/XLA.

The interpreter that has the framework runs this file by its path: it imports nothing of tpuwatch, and needs Python 3.8
or newer. Its argument is a JSON object that says what to do. It writes a JSON object a line to the descriptor `report`:
{"stage": NAME} as it goes on, {"fact": {...}} for what it learns, {"error": {...}} when it ends for a fault, and
{"done": true} when it has done all.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import os
import signal
import sys
import traceback
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIDE = 256  # of the matrices: two tiles of the matrix unit
_MODULES = {"jax": "jax", "tensorflow": "tensorflow", "torch": "torch_xla"}  # by framework, what has to be there
_MAX_VALUES = 4096  # of each result of a step that are compared
_MAX_RESULTS = 256
_NO_KERNEL = "No OpKernel was registered"
_PARENT_DIED = 1  # PR_SET_PDEATHSIG of prctl(2)


class ProbeStopError(Exception):
    """Ends the run with a reason: what `kind` of thing went wrong, and in which words."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Jax:
    """The computation in JAX."""

    def __init__(self, tpu: bool) -> None:
        self.tpu = tpu
        self.jax: Any = None
        self.devices: list[Any] = []

    def load(self) -> dict[str, Any]:
        os.environ["JAX_PLATFORMS"] = "tpu,cpu" if self.tpu else "cpu"
        import jax

        self.jax = jax
        found = {"version": jax.__version__, "files": [jax.__file__]}
        if self.tpu:
            libtpu = find_spec("libtpu")
            own = os.environ.get("TPU_LIBRARY_PATH")
            if libtpu is None and not own:
                raise ProbeStopError("wrong_build", f"JAX {jax.__version__} is installed without libtpu")
            found["files"].append(own or (libtpu and libtpu.origin))
        return found

    def initialise(self) -> None:
        platform = "tpu" if self.tpu else "cpu"
        try:
            self.devices = list(self.jax.local_devices(backend=platform))
        except RuntimeError as error:
            if "no devices" in str(error).lower() or "unknown backend" in str(error).lower():
                raise ProbeStopError("absent", str(error)) from error
            raise
        if not self.tpu:
            self.devices = self.devices[:1]

    def compile(self) -> None:
        self.compute_one = self.jax.jit(lambda a, b: (a @ b).astype("float32").sum(axis=1))
        first, second = self._matrices()
        self.compute_one.lower(first, second).compile()

    def compute(self) -> Iterator[tuple[str, list[float]]]:
        first, second = self._matrices()
        for device in self.devices:
            placed = self.jax.device_put((first, second), device)
            yield str(device), [float(value) for value in self.compute_one(*placed)]

    def step(self, function: Any) -> Any:
        with self.jax.default_device(self.devices[0]):
            return self.jax.device_get(function())

    def _matrices(self) -> tuple[Any, Any]:
        import numpy as np  # JAX takes seconds for lists

        make = self.jax.numpy.asarray
        return make(np.array(_first()), dtype="bfloat16"), make(np.array(_second()), dtype="bfloat16")


class TensorFlow:
    """The computation in TensorFlow: under TPUStrategy, or under the default one on the CPU."""

    def __init__(self, tpu: bool) -> None:
        self.tpu = tpu
        self.tf: Any = None
        self.devices: list[Any] = []
        self.strategy: Any = None
        self.resolver: Any = None

    def load(self) -> dict[str, Any]:
        import tensorflow as tf

        self.tf = tf
        return {"version": tf.__version__, "files": [tf.__file__]}

    def connect(self) -> None:
        """On a TPU alone."""
        self.resolver = self.tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
        self.tf.config.experimental_connect_to_cluster(self.resolver)

    def initialise(self) -> None:
        if not self.tpu:
            self.strategy = self.tf.distribute.get_strategy()
            self.devices = self.tf.config.list_logical_devices("CPU")[:1]
            return
        self.tf.tpu.experimental.initialize_tpu_system(self.resolver)
        self.strategy = self.tf.distribute.TPUStrategy(self.resolver)
        self.devices = self.tf.config.list_logical_devices("TPU")

    def compile(self) -> None:
        tf = self.tf
        first, second = _first(), _second()

        def product() -> Any:
            left, right = tf.constant(first, tf.bfloat16), tf.constant(second, tf.bfloat16)
            return tf.reduce_sum(tf.cast(tf.matmul(left, right), tf.float32), axis=1)

        compiled = tf.function(product, jit_compile=None if self.tpu else True)
        self.run = tf.function(lambda: self.strategy.run(compiled))
        self.run.get_concrete_function()

    def compute(self) -> Iterator[tuple[str, list[float]]]:
        for number, result in enumerate(self.strategy.experimental_local_results(self.run())):
            yield f"{'TPU' if self.tpu else 'CPU'}:{number}", [float(value) for value in result.numpy()]

    def step(self, function: Any) -> Any:
        with self.strategy.scope():
            result = self.strategy.run(self.tf.function(function))
            first = lambda leaf: self.strategy.experimental_local_results(leaf)[0]  # noqa: E731
            return self.tf.nest.map_structure(first, result)


class Torch:
    """The computation in PyTorch: by XLA on a TPU, by PyTorch itself on the CPU."""

    def __init__(self, tpu: bool) -> None:
        self.tpu = tpu
        self.torch: Any = None
        self.devices: list[Any] = []

    def load(self) -> dict[str, Any]:
        os.environ["PJRT_DEVICE"] = "TPU" if self.tpu else "CPU"
        import torch

        self.torch = torch
        found = {"version": torch.__version__, "files": [torch.__file__]}
        if self.tpu:
            self._load_xla()
            found["files"].append(self.xla.__file__)
        return found

    def _load_xla(self) -> None:
        name = f"PyTorch {self.torch.__version__}"
        if find_spec("torch_xla") is None and find_spec("torchax") is not None:
            raise ProbeStopError("interpreter", f"{name} computes by JAX here (torchax): probe with --framework jax")
        if find_spec("torch_xla") is None:
            raise ProbeStopError("wrong_build", f"{name} is installed without torch_xla")
        import torch_xla
        import torch_xla.core.xla_model as xm

        self.xla, self.xm = torch_xla, xm

    def initialise(self) -> None:
        names = (self.xm.get_xla_supported_devices() or []) if self.tpu else ["cpu"]
        self.devices = [self.torch.device(str(name)) for name in names]

    def compile(self) -> None:
        self._compute(self.devices[0])

    def compute(self) -> Iterator[tuple[str, list[float]]]:
        for device in self.devices:
            yield str(device), self._compute(device)

    def step(self, function: Any) -> Any:
        with self.devices[0]:
            result = function()
        if self.tpu:
            (self.xla.sync if hasattr(self.xla, "sync") else self.xm.mark_step)()  # before 2.4 it was called so
        return result

    def _compute(self, device: Any) -> list[float]:
        torch = self.torch
        first, second = (torch.tensor(rows, dtype=torch.bfloat16).to(device) for rows in (_first(), _second()))
        result = (first @ second).to(torch.float32).sum(dim=1)
        return [float(value) for value in result.cpu()]


class Stages:
    """All stages on one platform."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self._out = os.fdopen(request["report"], "w", buffering=1)
        self._stage = "start"

    def report(self, **message: Any) -> None:
        self._stage = message.get("stage", self._stage)
        self._out.write(json.dumps(message) + "\n")

    def run(self) -> int:
        """Returns the exit status."""
        try:
            self._run()
        except ProbeStopError as stop:
            self._fail(stop.kind, str(stop))
            return 1
        except Exception as error:  # frameworks and the user's code raise anything
            traceback.print_exc()
            message = f"{type(error).__name__}: {error}"
            self._fail("wrong_build" if _NO_KERNEL in message else "error", message)
            return 1
        self.report(done=True)
        return 0

    def _fail(self, kind: str, message: str) -> None:
        self.report(error={"kind": kind, "stage": self._stage, "message": message[:4000]})

    def _run(self) -> None:
        framework = self.request["framework"] or _framework()
        tpu = self.request["platform"] == "tpu"
        self.report(fact={"framework": framework, "python": sys.version.split()[0]})
        one: Any = {"jax": Jax, "tensorflow": TensorFlow, "torch": Torch}[framework](tpu)
        self.report(stage="import")
        try:
            found = one.load()
        except ModuleNotFoundError as error:
            if error.name != framework:
                raise  # a package that the framework needs
            raise ProbeStopError("interpreter", f"{sys.executable} cannot import {framework}: {error}") from error
        self.report(fact={**found, "files": [sys.executable, *filter(None, found["files"])]})
        if tpu and hasattr(one, "connect"):
            self.report(stage="connect")
            one.connect()
        self.report(stage="initialise")
        one.initialise()
        self.report(fact={"devices": [str(device) for device in one.devices]})
        if not one.devices:
            raise ProbeStopError("absent", f"{framework} finds no TPU")
        self.report(stage="compile")
        one.compile()
        self.report(stage="compute")
        _check(one.compute())
        if self.request["step"]:
            self.report(stage="step")
            self.report(fact={"results": _results(one.step(_named(self.request["step"])))})


def _framework() -> str:
    """The first framework that this interpreter has."""
    found = [name for name, module in _MODULES.items() if find_spec(module) is not None]
    if not found and find_spec("torch") is not None:
        return "torch"  # without what it needs for a TPU, which is an answer
    if not found:
        raise ProbeStopError("interpreter", f"{sys.executable} has none of JAX, TensorFlow and PyTorch/XLA")
    # Where there are several, JAX without a library for TPUs is what another package wanted.
    return found[1] if found[0] == "jax" and find_spec("libtpu") is None and len(found) > 1 else found[0]


def _first() -> list[list[int]]:
    return [[int((3 * row + column) % 5 < 2) for column in range(_SIDE)] for row in range(_SIDE)]


def _second() -> list[list[int]]:
    return [[int((row * column + row) % 7 < 3) for column in range(_SIDE)] for row in range(_SIDE)]


def _expected() -> list[int]:
    """The sum of each row of the product. All is exact: its elements are at most 256, up to which bfloat16 has all
    whole numbers, and their sums at most 65,536."""
    sums = [sum(row) for row in _second()]
    return [sum(left * right for left, right in zip(row, sums)) for row in _first()]


def _check(results: Iterator[tuple[str, list[float]]]) -> None:
    expected = _expected()
    for device, values in results:
        wrong = sum(value != right for value, right in zip(values, expected)) + abs(len(values) - len(expected))
        if wrong:
            raise ProbeStopError("value", f"{device} computed {wrong} of {len(expected)} sums wrongly")


def _named(name: str) -> Any:
    """The user's function."""
    sys.path.insert(0, os.getcwd())
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name not in (module, module.split(".")[0]):
            raise  # of what the user's module imports
        if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
            raise
        raise ProbeStopError("usage", f"--step: {error}") from error
    if not callable(found):
        raise ProbeStopError("usage", f"--step: {name} is no function")
    return found


def _results(tree: Any) -> list[dict[str, Any]]:
    """Every number and array of what the step returned, with its place in it."""
    return [_result(place, leaf) for place, leaf in _leaves("result", tree)][:_MAX_RESULTS]


def _leaves(place: str, tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key in tree:
            yield from _leaves(f"{place}[{key!r}]", tree[key])
    elif isinstance(tree, (list, tuple)):
        for number, one in enumerate(tree):
            yield from _leaves(f"{place}[{number}]", one)
    elif tree is not None:
        yield place, tree


def _result(place: str, leaf: Any) -> dict[str, Any]:
    for name in ("detach", "cpu", "float", "numpy"):  # tensors of PyTorch, then of all others
        if hasattr(leaf, name) and (name == "numpy" or type(leaf).__module__.startswith("torch")):
            leaf = getattr(leaf, name)()
    shape = list(getattr(leaf, "shape", ()))
    flat = leaf.reshape(-1) if hasattr(leaf, "reshape") else [leaf]
    step = -(-len(flat) // _MAX_VALUES) or 1  # evenly over all of it
    try:
        values = [float(value) for value in flat[::step]]
    except (TypeError, ValueError):
        raise ProbeStopError(
            "usage", f"--step: {place} is of the type {type(leaf).__name__}, which is no number"
        ) from None
    # JSON has no word for what is no number.
    shown = [value if math.isfinite(value) else str(value) for value in values]
    return {"place": place, "type": str(getattr(leaf, "dtype", type(leaf).__name__)), "shape": shape, "values": shown}


if __name__ == "__main__":
    # This file's directory must not hide modules of the standard library.
    sys.path[:] = [place for place in sys.path if place != os.path.dirname(os.path.abspath(__file__))]
    if hasattr(ctypes, "CDLL"):
        ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)  # nothing is left if tpuwatch itself is killed
    sys.exit(Stages(json.loads(sys.argv[1])).run())
