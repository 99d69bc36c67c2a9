"""What the user's sources show before anything runs: a walk over their syntax, which imports none of them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tpuwatch.advise.advice import passage
from tpuwatch.advise.source import MAX_FILES, CodeCall, SourceFile, dotted, read_all, unreadable
from tpuwatch.model import Gain, Passage, ProgramAdvice

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping
    from pathlib import Path

_INPUT: Final = passage("performance", "Model is input bound")
_DYNAMIC: Final = passage("troubleshooting", "Dynamic shapes")
_OPS: Final = passage("troubleshooting", "Unavailable TensorFlow ops")
_SPEED: Final = passage("troubleshooting", "Improve training speed")
_ACCURACY: Final = passage("troubleshooting", "Debug drops in model accuracy")
_SHOWN: Final = 4  # places of a finding that are named
_PYTHON: Final = ("py_function", "numpy_function", "py_func")
_EVALUATION: Final = re.compile(r"eval|test|valid|predict|infer", re.IGNORECASE)
_FILE: Final = re.compile(r"(file|path|filename)$|\.[a-z0-9]+$", re.IGNORECASE)  # in the singular
_LEAST_BATCH, _MOST_BATCH = 4, 1 << 17  # examples
_WORK: Final = re.compile(
    r"(^|\.)(io|image|audio)\.|decode|parse|random|token|py_func|numpy_func|load|read|process|augment|vectori|resize|crop",
    re.IGNORECASE,
)
_DECODING: Final = ("decode_jpeg", "decode_png", "decode_image", "decode_and_crop_jpeg", "decode_wav")
_NAMES: Final = {"tensorflow": "TensorFlow", "keras": "Keras", "jax": "JAX"}
_LEAST_CORE, _LEAST_ALL = 32, 256  # examples that batch norm's statistics need


@dataclass(frozen=True, slots=True)
class _Rule:
    id: str
    of: Gain
    reason: str
    change: str
    source: Passage
    applies: Callable[[CodeCall], bool]
    of_frameworks: tuple[str, ...] = ("tensorflow",)  # whose calls it looks at


@dataclass(frozen=True, slots=True)
class CodeAdvice:
    """What the rules say of source files, the rules that looked at one, and what was not looked at, by the reason."""

    found: tuple[ProgramAdvice, ...] = ()
    checked: tuple[str, ...] = ()
    not_checked: Mapping[str, list[str]] = field(default_factory=dict)


def code_advice(
    paths: Iterable[Path], *, batch: int | None = None, devices: int = 1, steps: Container[str] = ()
) -> CodeAdvice:
    """What the rules say of the calls in these files, each rule once, with all places; and what was looked at.

    `batch` is that of a device, `steps` the names of functions that run on it.
    """
    paths = list(paths)
    files = read_all(paths, steps)
    found = tuple(_found(files, batch, devices))
    rules = (*_RULES, _PREFETCH, _BATCH_NORM)
    known = {framework for file in files for framework in file.frameworks}
    spoke = {one.id for one in found}
    blind = {_BATCH_NORM.id} if batch is None else set()
    looked = (rule.id for rule in rules if known & set(rule.of_frameworks) or rule.id in spoke)
    checked = tuple(name for name in looked if name not in blind)
    not_checked: dict[str, list[str]] = {"no batch is given (--batch)": list(blind)} if blind else {}
    for rule in rules:
        if rule.id not in checked and rule.id not in blind:
            names = ", ".join(_NAMES[one] for one in rule.of_frameworks)
            missing = f"no source that was read imports {names}" if files else "no source was read (--source)"
            not_checked.setdefault(missing, []).append(rule.id)
    for file in files:
        if not file.frameworks and file.other:
            not_checked[f"{file.path.name}: no rule is for lines of {', '.join(file.other)}"] = []
    for path in paths:
        if reason := unreadable(path):
            not_checked[f"{path.name} could not be read: {reason}"] = []
    if len(paths) >= MAX_FILES:
        not_checked[f"only the first {MAX_FILES} source files were read"] = []
    return CodeAdvice(found, checked, not_checked)


def _found(files: list[SourceFile], batch: int | None, devices: int) -> Iterator[ProgramAdvice]:
    calls = [call for file in files for call in file.calls]
    for rule in _RULES:
        if found := [call for call in calls if rule.applies(call)]:
            yield _advice(rule, f"{found[0].name.lstrip('.')} at {_places(found)}", found)
    for file in files:
        batches = [call for call in file.calls if _batches(call)]
        if batches and all(call.last != "prefetch" for call in file.calls):
            yield _advice(_PREFETCH, f"batch at {_places(batches)}, and no prefetch", batches)
    yield from _normalisation(files, batch, devices)


def _advice(rule: _Rule, number: str, calls: list[CodeCall]) -> ProgramAdvice:
    places = [{"file": str(call.file.path), "line": call.node.lineno} for call in calls]
    figures = {"call": calls[0].name, "places": places}
    return ProgramAdvice(rule.id, 0.0, rule.of, number, rule.reason, rule.change, rule.source, places[0], figures)


def _places(calls: list[CodeCall]) -> str:
    """The first of them, and how many more there are."""
    shown = [f"{call.file.path.name}:{call.node.lineno}" for call in calls[:_SHOWN]]
    more = f" and {len(calls) - _SHOWN} more" if len(calls) > _SHOWN else ""
    return ", ".join(shown) + more


def _normalisation(files: list[SourceFile], batch: int | None, devices: int) -> Iterator[ProgramAdvice]:
    """Batch norm over too few examples."""
    calls = [call for file in files for call in file.calls if _is_batch_norm(call)]
    if not calls or batch is None or (batch >= _LEAST_CORE and batch * devices >= _LEAST_ALL):
        return
    call = calls[0]
    text = f"batch norm over {batch} examples a core, {batch * devices} in all, at {call.file.path.name}"
    yield _advice(_BATCH_NORM, f"{text}:{call.node.lineno}", calls)


def _is_batch_norm(call: CodeCall) -> bool:
    return call.last in ("BatchNormalization", "BatchNorm", "batch_normalization") and not (
        call.keyword("synchronized") is True or call.has("axis_name")
    )


_PREFETCH = _Rule(
    "prefetch",
    Gain.INPUT,
    "The next batch is made when the device asks for it, and the device waits.",
    "End the pipeline with prefetch(tf.data.AUTOTUNE).",
    passage("tf.data", "Prefetching"),
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
    ("keras", "jax"),
)


def _literal_path(call: CodeCall) -> bool:
    first = call.node.args[0] if call.node.args else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.startswith(("/", "./"))


def _kept(file: SourceFile) -> bool:
    return any(call.last in ("cache", "snapshot", "distribute") and call.dataset() for call in file.calls)


def _evaluates(call: CodeCall) -> bool:
    """Whether a function's name says that it does not train."""
    return call.function is not None and bool(_EVALUATION.search(call.function.name))


def _batches(call: CodeCall) -> bool:
    """Whether it makes a step's batch: not a pair, the whole of a dataset, or a list that was cut up before."""
    if call.last != "batch" or not call.dataset():
        return False
    size = getattr(call.node.args[0], "value", None) if call.node.args else None
    before = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    regrouped = isinstance(before, ast.Call) and dotted(before.func, {}).endswith("unbatch")
    return not regrouped and not (isinstance(size, int) and not _LEAST_BATCH <= size <= _MOST_BATCH)


def _ends(call: CodeCall) -> bool:
    """Whether a pipeline may come to a last, smaller batch: one that is repeated before does not."""
    before = [one for one in call.file.calls if one.function is call.function and one.node.lineno <= call.node.lineno]
    return not any(one.last == "repeat" and one.dataset() for one in before)


def _several(call: CodeCall) -> bool:
    """Whether files are read that could be read at once: not one file, and none that something interleaves."""
    given = call.node.args[0] if call.node.args else None
    named = getattr(given, "id", getattr(given, "attr", getattr(given, "value", "")))
    one_file = isinstance(named, str) and bool(_FILE.search(named))
    return not one_file and all(other.last != "interleave" for other in call.file.calls)


def _costs(call: CodeCall) -> bool:
    """Whether what a dataset is mapped by does work that threads would share; what cannot be looked into may."""
    given = call.node.args[0] if call.node.args else None
    names = {getattr(given, "id", getattr(given, "attr", ""))}
    inside = (
        [given] if isinstance(given, ast.Lambda) else [one.node for one in call.file.functions if one.name in names]
    )
    if not inside:
        return True
    called = [node for one in inside for node in ast.walk(one) if isinstance(node, ast.Call)]
    names |= {dotted(node.func, call.file.imports) for node in called}
    return call.last == "interleave" or any(_WORK.search(name) for name in names)


def _by_values(call: CodeCall) -> bool:
    """Whether the shape of its result depends on values."""
    if call.last == "where":
        return call.of("tensorflow", "jax") and call.arguments == 1
    if call.of("jax"):
        return call.last in ("nonzero", "unique", "argwhere", "flatnonzero") and not call.has("size")
    return call.of("tensorflow") and call.last in ("boolean_mask", "unique", "dynamic_partition")


def _seeded_by_replica(call: CodeCall) -> bool:
    if call.last not in ("PRNGKey", "key", "set_seed") or not call.of("jax", "tensorflow"):
        return False
    inner = [node for node in ast.walk(call.node) if isinstance(node, ast.Call) and node is not call.node]
    names = {dotted(node.func, call.file.imports).rpartition(".")[2] for node in inner}
    return bool(names & {"process_index", "axis_index", "time", "time_ns", "getpid"})


_RULES: Final = (
    _Rule(
        "host_python",
        Gain.RUNS,
        "It runs Python on the host, which a TPU cannot do inside of a step.",
        "Write it with TensorFlow's own ops, or do it in the input pipeline, or once before training.",
        _OPS,
        lambda call: call.of("tensorflow") and call.last in _PYTHON and call.file.in_step(call),
    ),
    _Rule(
        "python_input",
        Gain.INPUT,
        "Python makes or prepares each example, one at a time and in one process, however many calls are parallel.",
        "Write it with TensorFlow's own ops, or do it once before training and read the result from files.",
        _INPUT,
        lambda call: (
            call.of("tensorflow")
            and not call.file.in_step(call)
            and (call.last == "from_generator" or (call.last in _PYTHON and call.file.uses_datasets))
        ),
    ),
    _Rule(
        "cache",
        Gain.INPUT,
        "Each epoch decodes everything again.",
        "cache() after decoding, where that fits in the host's memory; else several hosts by the tf.data service.",
        passage("tf.data", "Caching"),
        lambda call: call.of("tensorflow") and call.last in _DECODING and not _kept(call.file),
    ),
    _Rule(
        "text_op",
        Gain.RUNS,
        "A TPU has no text: there is no kernel for it.",
        "Leave it out of the step, or do it on the host, before the step or after it.",
        _OPS,
        lambda call: (
            call.of("tensorflow")
            and (call.last == "as_string" or call.name.startswith("tensorflow.strings."))
            and call.file.in_step(call)
        ),
    ),
    _Rule(
        "callback",
        Gain.TIME,
        "Each call goes to the host and back, and the device waits for it.",
        "Compute it with jax.numpy, or take the value out of the step as a result.",
        passage("jax", "performance"),
        lambda call: call.of("jax") and call.last in ("pure_callback", "io_callback", "host_callback"),
        ("jax",),
    ),
    _Rule(
        "dynamic_shape",
        Gain.RUNS,
        "The shape of its result depends on values; a TPU's programs have the shapes that they were compiled with.",
        "Keep the shape and mask: multiply by the mask, or where with three arguments; in JAX also size=.",
        _DYNAMIC,
        lambda call: _by_values(call) and call.file.in_step(call),
        ("tensorflow", "jax"),
    ),
    _Rule(
        "drop_remainder",
        Gain.TIME,
        "The last batch of an epoch is smaller, so its shape is another: it is compiled again, or refused.",
        "batch(…, drop_remainder=True).",
        _DYNAMIC,
        lambda call: (
            _batches(call)
            and not call.has("drop_remainder")  # who says False means it
            and len(call.node.args) == 1
            and not _evaluates(call)
            and _ends(call)
        ),
    ),
    _Rule(
        "parallel_calls",
        Gain.INPUT,
        "One thread prepares one example after the other.",
        "Add num_parallel_calls=tf.data.AUTOTUNE.",
        _INPUT,
        lambda call: (
            call.last in ("map", "interleave")
            and call.dataset()
            and not call.has("num_parallel_calls")
            and _costs(call)
        ),
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
            and _several(call)
        ),
    ),
    _Rule(
        "local_files",
        Gain.RUNS,
        "Where the program runs on the TPU's own host, as with a remote worker, this path is not there.",
        "Keep data and checkpoints in Cloud Storage (gs://…).",
        passage("troubleshooting", "Cannot use local filesystem"),
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
        passage("troubleshooting", "Out-of-memory on the host"),
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
        ("keras",),
    ),
    _Rule(
        "wide_types",
        Gain.TIME,
        "A TPU computes with 32 bits and less.",
        "Leave jax_enable_x64 off, and use float32 or bfloat16, and int32.",
        passage("troubleshooting", "Unsupported data type"),
        lambda call: (
            call.name == "jax.config.update"
            and len(call.node.args) > 1
            and getattr(call.node.args[0], "value", "") == "jax_enable_x64"
            and getattr(call.node.args[1], "value", False) is True
        ),
        ("jax",),
    ),
    _Rule(
        "initialisation",
        Gain.ACCURACY,
        "Each process begins with other weights: replicas that are averaged have to begin alike.",
        "Make weights from the same seed everywhere, and fold the process into the keys of data and dropout alone.",
        _ACCURACY,
        _seeded_by_replica,
        ("tensorflow", "jax"),
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
            or (
                call.last.endswith(("Crossentropy", "Error"))
                and str(call.keyword("reduction")).lower() == "sum"
                and any(one.last == "compile" and one.has("loss") for one in call.file.calls)
            )
        ),
        ("keras", "jax"),
    ),
)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
