"""What the user's sources show before anything runs: a walk over their syntax, which imports none of them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.advise.advice import Gain, Passage, ProgramAdvice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAX_FILES: Final = 200
_MAX_BYTES: Final = 2 << 20
_INPUT: Final = Passage("performance", "Model is input bound")
_DYNAMIC: Final = Passage("troubleshooting", "Dynamic shapes")
_OPS: Final = Passage("troubleshooting", "Unavailable TensorFlow ops")
_SPEED: Final = Passage("troubleshooting", "Improve training speed")
_ACCURACY: Final = Passage("troubleshooting", "Debug drops in model accuracy")
_LEAST_CORE, _LEAST_ALL = 32, 256  # examples that batch norm's statistics need


@dataclass(frozen=True, slots=True)
class _Rule:
    id: str
    of: Gain
    reason: str
    change: str
    source: Passage
    applies: Callable[[_Call], bool]


@dataclass(frozen=True, slots=True)
class _Call:
    """A call in the user's code: its dotted name with imports resolved ("tensorflow.where"), or ".name" of a value."""

    name: str
    node: ast.Call
    file: _File

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]

    def of(self, *modules: str) -> bool:
        return self.name.split(".")[0] in modules

    def has(self, keyword: str) -> bool:
        return any(one.arg in (keyword, None) for one in self.node.keywords)

    def keyword(self, name: str) -> Any:
        """The constant that an argument is given by name; None for another."""
        return next((getattr(one.value, "value", None) for one in self.node.keywords if one.arg == name), None)

    @property
    def arguments(self) -> int:
        return len(self.node.args) + len(self.node.keywords)

    def dataset(self) -> bool:
        """A method of a value, in a file that uses tf.data."""
        return self.name.startswith(".") and self.file.uses_datasets


@dataclass(slots=True)
class _File:
    path: Path
    imports: dict[str, str] = field(default_factory=dict)
    calls: list[_Call] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    first_batch: _Call | None = None

    @property
    def uses_datasets(self) -> bool:
        return any(name.startswith("tensorflow") for name in self.imports.values()) and (
            "Dataset" in self.attributes or any("Dataset" in one.name for one in self.calls)
        )


def sources(start: Path, directory: Path) -> list[Path]:
    """A source file, and what it imports from below `directory`, and they in turn."""
    found: list[Path] = []
    waiting = [start.resolve()]
    while waiting and len(found) < MAX_FILES:
        path = waiting.pop(0)
        if path in found or not path.is_file() or path.stat().st_size > _MAX_BYTES:
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


def advice_on_code(paths: list[Path], *, batch: int | None = None, devices: int = 1) -> Iterator[ProgramAdvice]:
    """What the rules say of each call in these files. `batch` is that of a device."""
    files = [file for path in paths if (file := _read(path)) is not None]
    for file in files:
        for call in file.calls:
            for rule in _RULES:
                if rule.applies(call):
                    number = f"{call.name.lstrip('.')} at {file.path.name}:{call.node.lineno}"
                    yield _advice(rule, number, call)
        yield from _input_pipeline(file)
    yield from _normalisation(files, batch, devices)


def _advice(rule: _Rule, number: str, call: _Call) -> ProgramAdvice:
    place = {"file": str(call.file.path), "line": call.node.lineno}
    return ProgramAdvice(
        rule.id, rule.of, 0.0, number, rule.reason, rule.change, rule.source, place, {"call": call.name}
    )


def _input_pipeline(file: _File) -> Iterator[ProgramAdvice]:
    """A pipeline of batches without prefetch, and one that is read again in each epoch without a cache."""
    batches = [call for call in file.calls if call.last == "batch" and call.dataset()]
    methods = {call.last for call in file.calls}
    if batches and "prefetch" not in methods:
        yield _advice(_PREFETCH, f"batch at {file.path.name}:{batches[0].node.lineno}, and no prefetch", batches[0])
    maps = [call for call in file.calls if call.last == "map" and call.dataset()]
    if maps and not methods & {"cache", "snapshot", "distribute"}:
        text = f"map at {file.path.name}:{maps[0].node.lineno}, and neither cache nor tf.data service"
        yield _advice(_CACHE, text, maps[0])


def _normalisation(files: list[_File], batch: int | None, devices: int) -> Iterator[ProgramAdvice]:
    """Batch norm over too few examples."""
    calls = [call for file in files for call in file.calls if _is_batch_norm(call)]
    if not calls or batch is None or (batch >= _LEAST_CORE and batch * devices >= _LEAST_ALL):
        return
    call = calls[0]
    text = f"batch norm over {batch} examples a core, {batch * devices} in all, at {call.file.path.name}"
    yield _advice(_BATCH_NORM, f"{text}:{call.node.lineno}", call)


def _is_batch_norm(call: _Call) -> bool:
    return call.last in ("BatchNormalization", "BatchNorm", "batch_normalization") and not (
        call.keyword("synchronized") is True or call.has("axis_name")
    )


_PREFETCH = _Rule(
    "prefetch",
    Gain.INPUT,
    "The next batch is made when the device asks for it, and the device waits.",
    "End the pipeline with prefetch(tf.data.AUTOTUNE).",
    Passage("tf.data", "Prefetching"),
    lambda _: False,
)
_CACHE = _Rule(
    "cache",
    Gain.INPUT,
    "Each epoch reads and decodes everything again.",
    "cache() after what costs most, where that fits in the host's memory; else several hosts by the tf.data service.",
    Passage("tf.data", "Caching"),
    lambda _: False,
)
_BATCH_NORM = _Rule(
    "batch_norm",
    Gain.ACCURACY,
    f"Its statistics are those of one core's examples: with fewer than {_LEAST_CORE} of them, or {_LEAST_ALL} in all, "
    "they are noise, and accuracy drops against one large device.",
    f"Give each core {_LEAST_CORE} examples or more, {_LEAST_ALL} in all; or synchronise the statistics over cores "
    "(synchronized=True in Keras, axis_name in Flax), or use group or layer norm.",
    _ACCURACY,
    lambda _: False,
)


def _literal_path(call: _Call) -> bool:
    first = call.node.args[0] if call.node.args else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.startswith(("/", "./"))


def _seeded_by_replica(call: _Call) -> bool:
    if call.last not in ("PRNGKey", "key", "set_seed") or not call.of("jax", "tensorflow"):
        return False
    inner = [node for node in ast.walk(call.node) if isinstance(node, ast.Call) and node is not call.node]
    names = {_dotted(node.func, call.file.imports).rpartition(".")[2] for node in inner}
    return bool(names & {"process_index", "axis_index", "time", "time_ns", "getpid"})


_RULES: Final = (
    _Rule(
        "host_python",
        Gain.RUNS,
        "It runs Python on the host, which a TPU cannot do inside of a step, and which takes one thread in a pipeline.",
        "Write it with TensorFlow's own ops, or do it once before training.",
        _OPS,
        lambda call: (
            call.last in ("py_function", "numpy_function", "py_func", "from_generator")
            and (call.of("tensorflow") or call.dataset())
        ),
    ),
    _Rule(
        "text_op",
        Gain.RUNS,
        "A TPU has no text: there is no kernel for it.",
        "Leave it out of the step, or do it on the host after the step.",
        _OPS,
        lambda call: (
            call.of("tensorflow") and (call.last == "as_string" or call.name.startswith("tensorflow.strings."))
        ),
    ),
    _Rule(
        "callback",
        Gain.TIME,
        "Each call goes to the host and back, and the device waits for it.",
        "Compute it with jax.numpy, or take the value out of the step as a result.",
        Passage("jax", "performance"),
        lambda call: call.of("jax") and call.last in ("pure_callback", "io_callback", "host_callback"),
    ),
    _Rule(
        "dynamic_shape",
        Gain.RUNS,
        "The shape of its result depends on values; a TPU's programs have the shapes that they were compiled with.",
        "Keep the shape and mask: multiply by the mask, or where with three arguments; in JAX also size=.",
        _DYNAMIC,
        lambda call: (
            (call.of("tensorflow") and call.last == "boolean_mask")
            or (call.of("tensorflow", "jax") and call.last == "where" and call.arguments == 1)
            or (call.of("tensorflow") and call.last in ("unique", "dynamic_partition"))
            or (
                call.of("jax")
                and call.last in ("nonzero", "unique", "argwhere", "flatnonzero")
                and not call.has("size")
            )
        ),
    ),
    _Rule(
        "drop_remainder",
        Gain.RUNS,
        "The last batch of an epoch is smaller, so its shape is another: it is compiled again, or refused.",
        "batch(…, drop_remainder=True).",
        _DYNAMIC,
        lambda call: (
            call.last == "batch"
            and call.dataset()
            and call.keyword("drop_remainder") is not True
            and len(call.node.args) < 2
        ),
    ),
    _Rule(
        "parallel_calls",
        Gain.INPUT,
        "One thread prepares one example after the other.",
        "Add num_parallel_calls=tf.data.AUTOTUNE.",
        _INPUT,
        lambda call: call.last in ("map", "interleave") and call.dataset() and not call.has("num_parallel_calls"),
    ),
    _Rule(
        "parallel_reads",
        Gain.INPUT,
        "Files are read one after the other.",
        "Add num_parallel_reads=tf.data.AUTOTUNE, or interleave the files.",
        _INPUT,
        lambda call: (
            call.of("tensorflow")
            and call.last in ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
            and not call.has("num_parallel_reads")
        ),
    ),
    _Rule(
        "local_files",
        Gain.RUNS,
        "Where the program runs on the TPU's own host, as with a remote worker, this path is not there.",
        "Keep data and checkpoints in Cloud Storage (gs://…).",
        Passage("troubleshooting", "Cannot use local filesystem"),
        lambda call: (
            call.of("tensorflow")
            and call.last in ("TFRecordDataset", "TextLineDataset", "list_files")
            and _literal_path(call)
        ),
    ),
    _Rule(
        "global_input",
        Gain.HOST,
        "One dataset makes the batch of all replicas in one host's memory.",
        "distribute_datasets_from_function, with the batch of a replica, where an example is large.",
        Passage("troubleshooting", "Out-of-memory on the host"),
        lambda call: call.last == "experimental_distribute_dataset",
    ),
    _Rule(
        "steps_per_execution",
        Gain.TIME,
        "Python starts each step by itself, and the devices wait between steps where these are short.",
        "compile(…, steps_per_execution=N), so that N steps take a second or two. Callbacks then see every Nth step "
        "alone, and its figures.",
        _SPEED,
        lambda call: (
            call.last == "compile"
            and call.name.startswith(".")
            and call.has("optimizer")
            and not call.has("steps_per_execution")
        ),
    ),
    _Rule(
        "wide_types",
        Gain.TIME,
        "A TPU computes with 32 bits and less.",
        "Leave jax_enable_x64 off, and use float32 or bfloat16, and int32.",
        Passage("troubleshooting", "Unsupported data type"),
        lambda call: (
            call.name == "jax.config.update"
            and len(call.node.args) > 1
            and getattr(call.node.args[0], "value", "") == "jax_enable_x64"
            and getattr(call.node.args[1], "value", False) is True
        ),
    ),
    _Rule(
        "initialisation",
        Gain.ACCURACY,
        "Each process begins with other weights: replicas that are averaged have to begin alike.",
        "Make weights from the same seed everywhere, and fold the process into the keys of data and dropout alone.",
        _ACCURACY,
        _seeded_by_replica,
    ),
    _Rule(
        "loss_reduction",
        Gain.ACCURACY,
        "A sum over cores grows with their number, and with it the step that the optimizer takes.",
        "Take the mean over the global batch (pmean, or tf.nn.compute_average_loss with the global batch size), or "
        "divide the learning rate.",
        _ACCURACY,
        lambda call: (
            (call.of("jax") and call.last == "psum" and _names(call.node) & {"loss", "grads", "gradients"} != set())
            or (call.last.endswith(("Crossentropy", "Error")) and str(call.keyword("reduction")).lower() == "sum")
        ),
    ),
    _Rule(
        "materialised_broadcast",
        Gain.HBM,
        "All copies are written to memory where what uses them cannot do without.",
        "Leave it to the operation that uses it: most broadcast by themselves.",
        Passage("tensorflow performance", "tf.broadcast_to, tf.tile"),
        lambda call: (
            call.of("tensorflow", "jax")
            and call.last in ("tile", "broadcast_to", "repeat")
            and "random" not in call.name
        ),
    ),
)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _parsed(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError):
        return None


def _read(path: Path) -> _File | None:
    tree = _parsed(path)
    if tree is None:
        return None
    file = _File(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                file.imports[one.asname or one.name.split(".")[0]] = one.name if one.asname else one.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                file.imports[one.asname or one.name] = f"{node.module}.{one.name}"
        elif isinstance(node, ast.Attribute):
            file.attributes.add(node.attr)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda one: (one.end_lineno or 0, one.end_col_offset or 0)):
        file.calls.append(_Call(_dotted(node.func, file.imports), node, file))
    return file


def _dotted(node: ast.expr, imports: dict[str, str]) -> str:
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
