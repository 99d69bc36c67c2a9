"""The user's sources as syntax: their calls, and which of them a device's step reaches. Nothing is imported."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

MAX_FILES: Final = 200
_MAX_BYTES: Final = 2 << 20
_FRAMEWORKS: Final = frozenset({"tensorflow", "jax", "flax", "haiku", "equinox"})
_RULED: Final = {
    **dict.fromkeys(("tensorflow", "tensorflow_datasets"), "tensorflow"),
    **dict.fromkeys(("keras", "keras_cv", "keras_nlp", "keras_hub"), "keras"),
    **dict.fromkeys(("jax", "flax", "haiku", "equinox", "optax"), "jax"),
}
_OTHER: Final = frozenset({"torch", "torch_xla", "torchax", "lightning", "pytorch_lightning", "accelerate"})
# What they are given is traced, and becomes part of a step.
_TRACING: Final = frozenset(
    {"jit", "pjit", "pmap", "vmap", "shard_map", "grad", "value_and_grad", "scan", "fori_loop", "remat", "checkpoint"}
)
_STEP_METHODS: Final = frozenset({"call", "__call__", "train_step", "test_step", "compute_loss"})
_MODEL: Final = re.compile(r"(Layer|Model|Module)$")
_INPUT_CLASS: Final = re.compile(r"Preprocess|Token|Augment|Convert|Metric|Pipeline", re.IGNORECASE)  # the host's work
_DATASET: Final = re.compile(r"(^|_)(ds|tfds|dataset|datasets)($|_)|dataset$", re.IGNORECASE)
_RETURNED: Final = -1  # the scope of functions' names
_CHAINED: Final = frozenset(
    {"map", "batch", "shuffle", "repeat", "interleave", "prefetch", "cache", "filter", "take", "unbatch", "flat_map"}
)


@dataclass(slots=True)
class Function:
    """A function or method, by its name, in a class and in another function where it is so."""

    name: str
    node: ast.AST
    outer: Function | None
    owner: str  # the class, or ""
    root: bool = False  # whether a step begins here
    callees: set[tuple[str, str]] = field(default_factory=set)  # owner ("" for none) and name


@dataclass(frozen=True, slots=True)
class CodeCall:
    """A call in the user's code: its dotted name with imports resolved ("tensorflow.where"), or ".name" of a value."""

    name: str
    node: ast.Call
    file: SourceFile
    function: Function | None

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def arguments(self) -> int:
        return len(self.node.args) + len(self.node.keywords)

    def of(self, *modules: str) -> bool:
        return self.name.split(".")[0] in modules

    def has(self, keyword: str) -> bool:
        return any(one.arg in (keyword, None) for one in self.node.keywords)

    def keyword(self, name: str) -> Any:
        """The constant that an argument is given by name; None for another."""
        return next((getattr(one.value, "value", None) for one in self.node.keywords if one.arg == name), None)

    def dataset(self) -> bool:
        """A method of a tf.data pipeline, as far as its receiver shows."""
        receiver = self.node.func.value if isinstance(self.node.func, ast.Attribute) else None
        return receiver is not None and self.file.uses_tensorflow and self.file.is_dataset(receiver, self.function)


@dataclass(frozen=True, slots=True)
class Assigned:
    """A value that a name gets: a variable of a scope, or a function that returns it."""

    scope: int
    name: str
    value: ast.expr | None
    function: Function | None


@dataclass(slots=True)
class SourceFile:
    """A file that was read."""

    path: Path
    imports: dict[str, str] = field(default_factory=dict)
    calls: list[CodeCall] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    reached: set[int] = field(default_factory=set)  # the functions that a step reaches, by id()
    # Variables that hold tf.data, by their function's id(), and functions that return it, by _RETURNED.
    pipelines: set[tuple[int, str]] = field(default_factory=set)

    @property
    def uses_tensorflow(self) -> bool:
        return any(name.split(".")[0] in ("tensorflow", "tensorflow_datasets") for name in self.imports.values())

    @property
    def frameworks(self) -> set[str]:
        """Those that it imports and that rules are for: "tensorflow", "keras", "jax"."""
        found = {_RULED[first] for name in self.imports.values() if (first := name.split(".")[0]) in _RULED}
        # Keras comes with TensorFlow, and its models are used without an import of their own.
        return found | ({"keras"} if "tensorflow" in found else set())

    @property
    def other(self) -> list[str]:
        """Frameworks that it imports and that no rule is for."""
        return sorted({first for name in self.imports.values() if (first := name.split(".")[0]) in _OTHER})

    @property
    def uses_datasets(self) -> bool:
        return any(call.last in _CHAINED and call.dataset() for call in self.calls)

    def is_dataset(self, node: ast.expr, function: Function | None) -> bool:
        """Whether a value is a tf.data pipeline: by what it is made of or assigned from, else by its name."""
        if isinstance(node, ast.Call):
            name = dotted(node.func, self.imports)
            if name.startswith(("tensorflow.data.", "tensorflow_datasets.")):
                return True
            if isinstance(node.func, ast.Attribute) and node.func.attr in _CHAINED:
                return self.is_dataset(node.func.value, function)
            return bool(_DATASET.search(name.rpartition(".")[2])) or (_RETURNED, name) in self.pipelines
        if isinstance(node, ast.Attribute):
            return bool(_DATASET.search(node.attr))
        return isinstance(node, ast.Name) and (bool(_DATASET.search(node.id)) or self._assigned(node.id, function))

    def _assigned(self, name: str, function: Function | None) -> bool:
        """Whether a variable of a function, of those around it or of the module holds one."""
        if (_scope(function), name) in self.pipelines:
            return True
        return function is not None and self._assigned(name, function.outer)

    def in_step(self, call: CodeCall) -> bool:
        """Whether a step reaches it, as far as the files show: what a compiled function, a layer or a model calls."""
        return call.function is not None and id(call.function) in self.reached


def read_all(paths: Iterable[Path], steps: Container[str] = ()) -> list[SourceFile]:
    """The files that are Python. `steps` names functions that are steps, beside those that are compiled."""
    found = [source for path in paths if (source := _read(path)) is not None]
    _follow(found, steps)
    return found


def _read(path: Path) -> SourceFile | None:
    tree = _parsed(path)
    if tree is None:
        return None
    source = SourceFile(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                first = one.name.split(".")[0]
                source.imports[one.asname or first] = one.name if one.asname else first
        elif isinstance(node, ast.ImportFrom):
            module = f"{'local.' if node.level else ''}{node.module or ''}".strip(".")
            for one in node.names:
                source.imports[one.asname or one.name] = f"{module}.{one.name}"
    visitor = _Visitor(source)
    visitor.visit(tree)
    _follow_pipelines(source, visitor.assigned)
    source.calls.sort(key=lambda one: (one.node.end_lineno or 0, one.node.end_col_offset or 0))
    return source


def _follow_pipelines(source: SourceFile, assigned: list[Assigned]) -> None:
    """Find the variables that hold a tf.data pipeline, and the functions that return one: each may make another one."""
    waiting = len(assigned)
    while waiting:
        waiting -= 1
        before = len(source.pipelines)
        for one in assigned:
            if one.value is not None and source.is_dataset(one.value, one.function):
                source.pipelines.add((one.scope, one.name))
        if len(source.pipelines) == before:
            return


def _scope(function: Function | None) -> int:
    return 0 if function is None else id(function)


def _follow(files: Iterable[SourceFile], steps: Container[str]) -> None:
    """Find what the steps reach: from each root by the names that are called, and all that is defined inside."""
    files = list(files)
    own: dict[tuple[Path, str, str], list[tuple[SourceFile, Function]]] = {}
    shared: dict[tuple[str, str], list[tuple[SourceFile, Function]]] = {}  # by module and function
    waiting = []
    for file in files:
        traced = {name for call in file.calls for name in _traced_names(call)}
        module = file.path.parent.name if file.path.stem == "__init__" else file.path.stem
        for one in file.functions:
            own.setdefault((file.path, one.owner, one.name), []).append((file, one))
            shared.setdefault((module, one.name), []).append((file, one))
            if one.root or one.name in traced or one.name in steps:
                waiting.append((file, one))
    while waiting:
        file, function = waiting.pop()
        if id(function) in file.reached:
            continue
        file.reached.add(id(function))
        waiting += [(file, inner) for inner in file.functions if inner.outer is function]
        for owner, name in function.callees:
            waiting += own.get((file.path, owner, name), ())
            module, _, last = file.imports.get(name, name).rpartition(".")
            waiting += shared.get((module.rpartition(".")[2], last), ())


def sources(start: Path, directory: Path) -> list[Path]:
    """A source file, and what it imports from below `directory`, and they in turn."""
    found: list[Path] = []
    waiting = [start.resolve()]
    while waiting and len(found) < MAX_FILES:
        path = waiting.pop(0)
        if path in found or not path.is_file():
            continue
        found.append(path)
        tree = _parsed(path)
        for node in ast.walk(tree) if tree is not None else ():
            waiting += _imported(node, path, directory.resolve())
    return found


def module_file(name: str, directory: Path) -> Path | None:
    """The file of a module below a directory: "train.step" is train/step.py, or train/step/__init__.py."""
    base = directory.joinpath(*name.split("."))
    return next((one for one in (base.with_suffix(".py"), base / "__init__.py") if one.is_file()), None)


def dotted(node: ast.expr, imports: dict[str, str]) -> str:
    """The name of what is called: by its import where it has one, else "." and the method's name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in imports:
        return ".".join([imports[node.id], *reversed(names)])
    if isinstance(node, ast.Name) and not names:
        return node.id
    return f".{names[0]}" if names else ""


class _Visitor(ast.NodeVisitor):
    """Collects calls and functions, each with where it stands."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source
        self._function: Function | None = None
        self._class: ast.ClassDef | None = None
        self.assigned: list[Assigned] = []

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        function = self._function
        if function is not None and not function.owner:
            self.assigned.append(Assigned(_RETURNED, function.name, node.value, function))
        self.generic_visit(node)

    def _assign(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self.assigned.append(Assigned(_scope(self._function), target.id, value, self._function))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before, self._class = (self._class, self._function), node
        self._function = None
        self.generic_visit(node)
        self._class, self._function = before

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        owner = self._class.name if self._class is not None and self._function is None else ""
        made = Function(node.name, node, self._function, owner, self._begins(node, owner))
        self._source.functions.append(made)
        before, self._function = self._function, made
        self.generic_visit(node)
        self._function = before

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 (ast's name)

    def visit_Call(self, node: ast.Call) -> None:
        self._source.calls.append(CodeCall(dotted(node.func, self._source.imports), node, self._source, self._function))
        if self._function is not None:
            self._function.callees.update(self._callee(node.func))
        self.generic_visit(node)

    def _callee(self, node: ast.expr) -> Iterator[tuple[str, str]]:
        name = dotted(node, self._source.imports)
        if isinstance(node, ast.Name):
            yield "", node.id
        elif not name.startswith(".") and "." in name:
            yield "", name
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield self._class.name if self._class is not None else "", node.attr

    def _begins(self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str) -> bool:
        for decorator in node.decorator_list:
            for one in ast.walk(decorator):
                name = dotted(one, self._source.imports) if isinstance(one, (ast.Attribute, ast.Name)) else ""
                if _traces(name):
                    return True
        if not owner or self._class is None or node.name not in _STEP_METHODS or _INPUT_CLASS.search(owner):
            return False
        bases = [dotted(base, self._source.imports).rpartition(".")[2] for base in self._class.bases]
        return any(_MODEL.search(base) and not _INPUT_CLASS.search(base) for base in bases)


def _traces(name: str) -> bool:
    """Whether what it decorates or is given becomes part of a step."""
    first, last = name.split(".")[0], name.rpartition(".")[2]
    return name == "tensorflow.function" or (first in _FRAMEWORKS - {"tensorflow"} and last in _TRACING)


def _traced_names(call: CodeCall) -> Iterator[str]:
    """The functions that a call makes steps of, or has every replica run."""
    if _traces(call.name) or (call.last in ("run", "experimental_run_v2") and call.name.startswith(".")):
        for one in call.node.args[:1]:
            if isinstance(one, ast.Name):
                yield one.id


def unreadable(path: Path) -> str:
    """Why a source file cannot be read as Python; "" where it can."""
    parsed = _parse(path)
    return parsed if isinstance(parsed, str) else ""


def _parsed(path: Path) -> ast.Module | None:
    parsed = _parse(path)
    return None if isinstance(parsed, str) else parsed


def _parse(path: Path) -> ast.Module | str:
    """The file's syntax, or why there is none."""
    if path.suffix == ".ipynb":
        return "it is a notebook; write its code to a file with `jupyter nbconvert --to script`"
    try:
        if path.stat().st_size > _MAX_BYTES:
            return f"it has more than {_MAX_BYTES >> 20} MiB"
        return ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        return error.strerror or str(error)
    except SyntaxError as error:
        where = f"line {error.lineno}: " if error.lineno else ""
        return f"{where}{error.msg}"
    except (ValueError, RecursionError) as error:
        return f"it is no Python: {error}"


def _imported(node: ast.AST, path: Path, directory: Path) -> Iterator[Path]:
    """The files below `directory` that an import names."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [one.name for one in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = directory if not node.level else path.parents[node.level - 1]
        module = node.module or ""
        for name in [module, *(f"{module}.{one.name}".strip(".") for one in node.names)]:
            found = module_file(name, base) if name else None
            if found is not None and directory in found.resolve().parents:
                yield found.resolve()
    for name in names:
        found = module_file(name, directory)
        if found is not None:
            yield found.resolve()
