"""A program of PyTorch as a function of JAX.

The program runs once with tensors that have shapes and no values. What reaches PyTorch's kernels, the backward pass and
the optimizer's updates among it, is recorded, and each of these ops becomes what torchax has for it in JAX. Weights,
buffers and the optimizer's state, which the program changes where they are, become arguments and results.
It needs PyTorch, and torchax 0.0.13 or newer.
"""

from __future__ import annotations

import copy
import functools
import os
import re
import sys
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .place import HERE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PLACE = re.compile(r'File "([^"]+)", line ([0-9]+)')
# Overloads for named dimensions: PyTorch 2.13 has them no more, and torchax 0.0.13 names them when it is imported.
_REMOVED = (("prod", "dim_Dimname"), ("index_copy", "dimname"))


class ValueNeededError(Exception):
    """The program looks at a tensor's value, which nobody knows before it has run."""


class Lifted:
    """A tensor that outlives a step: what it is to the program, and its name there."""

    def __init__(self, part: str, path: str, tensor: Any) -> None:
        self.part, self.path, self.tensor = part, path, tensor


@contextmanager
def without_values() -> Iterator[None]:
    """While it lasts, tensors are made without the memory for their values, where PyTorch has been imported."""
    if "torch" not in sys.modules:
        yield
        return
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def holds_torch(tree: Any) -> bool:
    """Whether a tree, or a program, has tensors, modules or optimizers of PyTorch in it."""
    torch = sys.modules.get("torch")
    kinds = () if torch is None else (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
    return torch is not None and any(isinstance(leaf, kinds) for leaf in torch.utils._pytree.tree_leaves(tree))


def tensors_of(tree: Any) -> list[Any]:
    """The tensors of a tree, without those that modules and optimizers hold."""
    import torch

    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class TorchStep:
    """A function, or a module, and what it is called with: a tuple, or a dict by name."""

    def __init__(self, function: Any, given: Any) -> None:
        """`given` may hold shapes of JAX in the place of tensors. Raises ValueNeededError, and what the program
        raises."""
        import torch
        from torch._subclasses.fake_tensor import DataDependentOutputException, FakeCopyMode, FakeTensorMode

        self._torch = torch
        self.__name__ = getattr(function, "__name__", type(function).__name__)  # of the compiled module
        call = (function, given if isinstance(given, dict) else tuple(given))
        known = [one.fake_mode for one in _held(torch, call) if hasattr(one, "fake_mode")]
        self._mode = known[0] if known else FakeTensorMode(allow_non_fake_inputs=True)
        with FakeCopyMode(self._mode):
            self._call = copy.deepcopy(call)
        with self._mode:
            self._call = torch.utils._pytree.tree_map(functools.partial(_tensor, torch), self._call)
        self.given = self._call[1]
        for leaf in torch.utils._pytree.tree_leaves(self._call):
            for group in leaf.param_groups if isinstance(leaf, torch.optim.Optimizer) else ():
                group.update({"capturable": True} if "capturable" in group else {})  # its count of steps stays a tensor
        try:
            with self._as_compiled():
                self._run()  # an optimizer makes its state in its first step
        except DataDependentOutputException as error:
            raise ValueNeededError(
                "the program looks at the value of a tensor, as item() and float() do, or an `if`: a TPU would have to "
                "be waited for in each step, and before it runs there is none; leave it out of the function"
            ) from error
        self._lowering = _Lowering(torch)
        self.lifted = list(self._find())
        self._graph = self._recorded()
        places = [node for node in self._graph.nodes if node.op == "placeholder"]
        numbers = {node: number for number, node in enumerate(places)}
        copied = [node for node in self._graph.nodes if _is_copy(torch, node) and node.args[0] in numbers]
        self._changed = {numbers[node.args[0]]: node.args[1] for node in copied}
        self.donated = tuple(sorted(self._changed))  # numbers of the lifted tensors that a step changes

    def __call__(self, *arrays: Any) -> list[Any]:
        """The step in JAX: of arrays in the order of `lifted` what it returns, the gradients that it leaves, and what
        it has changed."""
        values: dict[Any, Any] = {}
        given = iter(arrays)
        lowering = self._lowering
        lowering.begin()
        result: list[Any] = []
        for node in self._graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = lowering.constant(getattr(self._graph.owning_module, node.target))
            elif node.op == "output":
                found = self._torch.fx.map_arg(node.args[0], values.__getitem__)
                result = [one for one in found if hasattr(one, "shape")]
            elif not _is_copy(self._torch, node):
                args, named = self._torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = _at(node)(functools.partial(lowering, node.target, args, named))
        changed = [values[self._changed[number]].astype(arrays[number].dtype) for number in self.donated]
        return [*result, *changed]

    def _run(self) -> Any:
        function, given = self._call
        return function(**given) if isinstance(given, dict) else function(*given)

    @contextmanager
    def _as_compiled(self) -> Iterator[None]:
        """As PyTorch runs what it leaves to a compiler, and without the kernels that only a CPU has."""
        torch = self._torch
        compiling, torch.compiler._is_compiling_flag = torch.compiler._is_compiling_flag, True
        try:
            with ExitStack() as stack:
                stack.enter_context(self._mode)
                stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
                stack.enter_context(torch.backends.mkldnn.flags(enabled=False, allow_tf32=None))
                yield
        finally:
            torch.compiler._is_compiling_flag = compiling

    def _find(self) -> Iterator[Lifted]:
        """Every tensor that outlives a step, once."""
        seen = set[int]()
        for part, path, tensor in self._all():
            if isinstance(tensor, self._torch.Tensor) and id(tensor) not in seen:
                seen.add(id(tensor))
                yield Lifted(part, path, tensor)

    def _all(self) -> Iterator[tuple[str, str, Any]]:
        tree = self._torch.utils._pytree
        leaves = tree.tree_leaves(self._call)
        modules = [one for one in leaves if isinstance(one, self._torch.nn.Module)]
        weights = [found for module in modules for found in module.named_parameters()]
        names = {id(tensor): path for path, tensor in weights}
        yield from (("weights", path, tensor) for path, tensor in weights)
        yield from (("state", path, tensor) for module in modules for path, tensor in module.named_buffers())
        for optimizer in (one for one in leaves if isinstance(one, self._torch.optim.Optimizer)):
            for weight, state in optimizer.state.items():
                name = names.get(id(weight), "?")
                yield from (("optimizer", f"{name}.{key}", tensor) for key, tensor in state.items())
        yield from (("gradients", f"{path}.grad", tensor.grad) for path, tensor in weights)
        yield from (("inputs", tree.keystr(path), tensor) for path, tensor in tree.tree_leaves_with_path(self.given))

    def _recorded(self) -> Any:
        """The graph of its ops below autograd, none of which changes a tensor in place but the copies at its end."""
        from torch.fx import Interpreter
        from torch.fx.experimental.proxy_tensor import make_fx
        from torch.fx.traceback import preserve_node_meta

        torch = self._torch

        def run(*_: Any) -> list[Any]:
            with _lines(torch):
                result = self._run()
            gradients = [one.tensor.grad for one in self.lifted if one.part == "weights"]
            return [*tensors_of(result), *(one for one in gradients if one is not None)]

        flat = [one.tensor for one in self.lifted]
        with self._as_compiled(), preserve_node_meta():
            recorded = make_fx(run, tracing_mode="real")(*flat)
            plain = torch.func.functionalize(Interpreter(recorded).run, remove="mutations_and_views")
            table = self._lowering.decompositions()
            module = make_fx(plain, table, tracing_mode="real")(*[one.detach() for one in flat])
        module.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or _is_copy(torch, node))
        return module.graph


class _Lowering:
    """The ops of PyTorch in JAX, as torchax has them."""

    def __init__(self, torch: Any) -> None:
        import jax

        _import_torchax(torch)
        from torchax.ops import jaten, mappings, ops_registry  # jaten fills the registry

        aten = torch.ops.aten
        self._jax, self._mappings = jax, mappings
        self._known = ops_registry.all_aten_ops
        self._convolution = self._known[aten.convolution].func
        # What torchax has not, since it differentiates in JAX; or by a loop over all windows.
        self._own: dict[Any, Callable[..., Any]] = {
            aten.convolution_backward: self._convolution_backward,
            aten.max_pool2d_with_indices_backward: self._gradient_of(jaten.max_pool, 1),  # but the places of maxima
            aten.max_pool3d_with_indices_backward: self._gradient_of(jaten.max_pool, 1),
            aten.avg_pool2d_backward: self._gradient_of(self._known[aten.avg_pool2d].func),
            aten.avg_pool3d_backward: self._gradient_of(self._known[aten.avg_pool3d].func),
            aten.rand_like: lambda value, **_: jax.random.uniform(
                self.get_and_rotate_prng_key(), value.shape, value.dtype
            ),
        }
        self._aten = aten
        self._key: Any = None

    def begin(self) -> None:
        """Before a program is traced."""
        self._key = self._jax.random.key(0, impl="unsafe_rbg")  # one op of XLA, as PyTorch/XLA has it

    def decompositions(self) -> dict[Any, Any]:
        """PyTorch's own: those of its core, and of what torchax has not."""
        import torch

        core = torch._decomp.core_aten_decompositions()
        every = torch._decomp.decomposition_table
        return {op: every.get(op) or core[op] for op in {*core, *every} if op in core or self._function(op) is None}

    def _function(self, target: Any) -> Any:
        """What torchax, or this class, has for an op; None for nothing. A copy of a view is as good as the view."""
        packet = getattr(target, "overloadpacket", target)
        if packet in self._own:
            return self._own[packet]
        plain = getattr(self._aten, packet.__name__.removesuffix("_copy"), None)
        op = self._known.get(target) or self._known.get(packet) or self._known.get(plain)
        op = op or self._known.get(getattr(plain, "default", None))
        if op is None or not op.is_jax_function:
            return None
        return functools.partial(op.func, env=self) if op.needs_env else op.func

    def __call__(self, target: Any, args: Any, named: Any) -> Any:
        if not hasattr(target, "overloadpacket"):
            return target(*args, **named)  # of Python, such as getitem
        function = self._function(target)
        if function is None:
            raise NotImplementedError(f"torchax has no {target} in JAX")
        return function(*args, **named)

    def constant(self, tensor: Any) -> Any:
        tensor = getattr(tensor, "constant", None) if hasattr(tensor, "fake_mode") else tensor
        if tensor is None:
            raise NotImplementedError("a tensor outside of the arguments has no values here: pass it to the function")
        return self._mappings.t2j(tensor.detach(), use_dlpack=False)

    def get_and_rotate_prng_key(self, _generator: Any = None) -> Any:
        """What torchax's ops of random numbers ask their environment for."""
        self._key, key = self._jax.random.split(self._key)
        return key

    def _convolution_backward(self, gradient: Any, values: Any, weight: Any, bias: Any, *rest: Any) -> list[Any]:
        """The gradients of its input, its weights and its bias, if it has one."""
        *options, wanted = rest

        def forward(one: Any, two: Any) -> Any:
            return self._convolution(one, two, None, *options)

        _, backward = self._jax.vjp(forward, values, weight)
        of_bias = gradient.sum([side for side in range(gradient.ndim) if side != 1]) if bias else None
        return [one if needed else None for one, needed in zip((*backward(gradient), of_bias), wanted, strict=True)]

    def _gradient_of(self, forward: Callable[..., Any], extra: int = 0) -> Callable[..., Any]:
        """The backward pass of an op of one tensor with options, of which the last `extra` are no options of it."""

        def backward(gradient: Any, values: Any, *options: Any) -> Any:
            kept = options[: len(options) - extra]
            return self._jax.vjp(lambda one: forward(one, *kept), values)[1](gradient)[0]

        return backward


def shape_of(jax: Any, tensor: Any, sharding: Any) -> Any:
    """Its shape and type in JAX, which has 64 bits only where that is enabled."""
    kind = jax.dtypes.canonicalize_dtype(jax.numpy.dtype(str(tensor.dtype).removeprefix("torch.")))
    return jax.ShapeDtypeStruct(tuple(tensor.shape), kind, sharding=sharding)


def hide_frames() -> None:
    """Have JAX name the user's lines as the source of an operation, and none of PyTorch, torchax or of ours."""
    from jax.extend.source_info_util import register_exclusion

    if "torch" in sys.modules:
        found = [find_spec(name) for name in ("torch", "torchax")]
        for directory in [HERE, *(os.path.dirname(one.origin) for one in found if one is not None and one.origin)]:
            register_exclusion(directory)


def _import_torchax(torch: Any) -> None:
    for name, overload in _REMOVED:
        packet = getattr(torch.ops.aten, name)
        if overload not in packet.overloads():
            setattr(packet, overload, None)
    import torchax  # noqa: F401


def _tensor(torch: Any, leaf: Any) -> Any:
    """A tensor in the place of a shape of JAX."""
    if isinstance(leaf, torch.Tensor) or not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return leaf
    return torch.zeros(tuple(leaf.shape), dtype=getattr(torch, str(leaf.dtype)))


def _held(torch: Any, tree: Any) -> Iterator[Any]:
    """The tensors of a tree, and those that modules in it hold."""
    for leaf in torch.utils._pytree.tree_leaves(tree):
        if isinstance(leaf, torch.nn.Module):
            yield from leaf.parameters()
            yield from leaf.buffers()
        elif isinstance(leaf, torch.Tensor):
            yield leaf


def _is_copy(torch: Any, node: Any) -> bool:
    return node.target is torch.ops.aten.copy_.default


@contextmanager
def _lines(torch: Any) -> Iterator[None]:
    """While it lasts, each op that is recorded keeps the user's line that it is of; one of the backward pass that of
    the op whose gradient it computes."""
    from torch.fx.traceback import set_stack_trace
    from torch.utils._python_dispatch import TorchDispatchMode

    package = os.path.dirname(torch.__file__) + os.sep
    forward: dict[int, str] = {}

    class Lines(TorchDispatchMode):  # type: ignore[misc,unused-ignore] # the user's own class
        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            behind = torch._C._current_autograd_node()
            if behind is None:
                line = forward[torch.autograd._get_sequence_nr() - 1] = _users_place(package)
            else:
                line = forward.get(behind._sequence_nr(), "") or _users_place(package)
            set_stack_trace([line])
            return func(*args, **(kwargs or {}))

    with Lines():
        yield


def _users_place(package: str) -> str:
    """The innermost frame of neither PyTorch nor this program, as a traceback has it."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((package, HERE, "<")):
            return f'File "{name}", line {frame.f_lineno}'
        frame = frame.f_back
    return ""


def _at(node: Any) -> Callable[[Any], Any]:
    found = _PLACE.search(node.meta.get("stack_trace") or "")
    return _caller(found[1], int(found[2])) if found else lambda call: call()


@functools.lru_cache(None)
def _caller(file: str, line: int) -> Any:
    """Calls a function from that line, so that JAX and the traceback of an exception name it."""
    return eval(compile("\n" * (line - 1) + "lambda call: call()", file, "eval"))  # noqa: S307 (it is this text)
