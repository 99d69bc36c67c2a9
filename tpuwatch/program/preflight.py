"""Whether a program fits on a TPU, found out before there is one: libtpu's own compiler says so, in a child process."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import ConfigError, format_size, like
from tpuwatch.host import ProcFs, read_memory
from tpuwatch.libtpu import ARGUMENTS, LOG_DIR, UNBUFFERED, merged_all
from tpuwatch.model import FindingDocument, PreflightDocument, PreflightResultDocument, TrialDocument, TrialFigures
from tpuwatch.program.assignment import MODULES, VMODULE
from tpuwatch.program.child import Child, ChildError, ChildLimits
from tpuwatch.program.compiler import Compiler, NoAnswerError
from tpuwatch.program.largest import Ask, Need, largest_batch
from tpuwatch.program.output import LOGS, OUTPUT, find_faults, tail
from tpuwatch.program.roofline import flops_of, roofline_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from tpuwatch.model import Finding
    from tpuwatch.program.targets import CompileTarget

LEAST_MEMORY: Final = 1200 << 20  # bytes that must be free: what JAX and the compiler take for a small program
HBM: Final = "hbm"
_NAME_A_STEP: Final = (
    "Name a function that takes arrays and returns arrays, such as the training step, and pass its arguments: "
    "--args MODULE:FACTORY, or --shape f32[64,128] for each."
)
FRONT: Final = Path(__file__).parent / "front" / "__main__.py"
# The compiler neither asks the metadata server, nor takes the lock of a job that runs here, nor looks for a TPU.
_ENVIRONMENT: Final = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True)
class Program:
    """What is compiled: a function, as "module:name", and its arguments from a factory or as shapes ("f32[8,128]")."""

    function: str
    arguments: str | None = None
    shapes: tuple[str, ...] = ()
    donate: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(TrialFigures):
    """What came of one batch, and of what it was computed."""

    change: str | None = None  # of the program, to see what it would give: a name of `front/change.py`
    problem: str | None = None  # why the changed program could not be compiled
    graph: Mapping[str, Any] | None = None  # what `front/graph.py` counts
    tensors: Sequence[Mapping[str, Any]] = ()  # the arguments of a device, the largest first

    @property
    def counted(self) -> Mapping[str, Any] | None:
        """The counts of its graph, where it could be counted."""
        return None if self.graph is None or "problem" in self.graph else self.graph


@dataclass(frozen=True, slots=True)
class Preflight:
    """What came of one target. `problem` says why there is no answer: kind, stage, message, place in his code."""

    target: CompileTarget
    trials: tuple[Trial, ...] = ()  # in the order in which they were made
    largest: int | None = None  # the largest batch that fits, where it was searched for
    findings: tuple[Finding, ...] = ()
    problem: Mapping[str, Any] | None = None
    changed: tuple[Trial, ...] = ()  # the same program with changes
    kernels: Mapping[str, Any] | None = None  # the ops of a TensorFlow graph, and those that XLA has no kernel for
    output: str = ""  # the end of what the child printed, where it gave no answer
    seconds: float = 0.0

    @property
    def trial(self) -> Trial | None:
        """The trial that counts: that of the largest batch that fits, else the last one."""
        return _counting(self.trials, self.largest)

    @property
    def fits(self) -> bool | None:
        """None if there is no answer."""
        return None if self.trial is None or self.problem is not None else self.trial.fits


def _counting(trials: Sequence[Trial], largest: int | None) -> Trial | None:
    found = [trial for trial in trials if trial.fits and trial.batch == largest]
    return found[-1] if found else trials[-1] if trials else None


@dataclass(frozen=True, slots=True)
class Change:
    """A trial of the changed program; `change` None: as it is, with another batch."""

    change: str | None
    batch: int | None


def run_preflight(
    program: Program,
    target: CompileTarget,
    *,
    batch: int | None = None,
    up_to: int | None = None,
    step: int = 1,
    code: bool = True,
    python: str,
    limits: ChildLimits,
    environ: Mapping[str, str],
    on_stage: Callable[[str], None],
    front: Path = FRONT,
    changes: Callable[[Trial], Iterable[Change]] | None = None,
) -> Preflight:
    """Compile the program for the target, with `batch`, or with the largest batch up to `up_to`, a multiple of `step`.

    `code` False: no further than until it is known whether its memory suffices. `changes` says, once that is done,
    which changes of it to compile as well: their code is not made, but where the parts of the memory are not known
    without it.
    `front` is what `python` runs; `on_stage` is called several times a second with what is being done.

    Raises ConfigError for what the user gave wrongly, and never for what the program does; KeyboardInterrupt ends the
    child.
    """
    if up_to is not None and up_to < step:
        raise ConfigError(f"--max-batch {up_to} is less than --batch-step {step}: no batch is a multiple of {step}")
    started = time.monotonic()
    search = _once(batch) if up_to is None else largest_batch(step, up_to, confirm=code)
    with tempfile.TemporaryDirectory(prefix="tpuwatch-preflight-") as name:
        directory = Path(name)
        logs = directory / LOGS
        logs.mkdir()

        def child() -> Child:
            return _child(
                program,
                target,
                [python, str(front)],
                limits,
                environ,
                directory,
                changes=changes is not None,
                since=started,
            )

        compiler = Compiler(child, logs, on_stage)
        done = Preflight(target)
        try:
            done = _searched(compiler, search, done, program, code=code, parts=changes is not None)
            done = _changed(compiler, done, changes)
        finally:
            compiler.close()
        done = replace(done, kernels=compiler.kernels)
        if done.problem is not None and done.problem["kind"] == "usage":
            raise ConfigError(done.problem["message"])
        if done.fits is not True:
            done = replace(done, findings=find_faults(directory, compiler.log.since))
        if done.problem is not None:
            done = replace(done, output=tail(directory))
    return replace(done, seconds=time.monotonic() - started)


def _searched(
    compiler: Compiler,
    search: Generator[Ask, Need, int | None],
    done: Preflight,
    program: Program,
    *,
    code: bool,
    parts: bool,
) -> Preflight:
    """With the trials of a search, and what it found or why there is no answer. `parts`: with those of its memory.

    Raises ConfigError for a program that computes nothing.
    """
    ask = next(search)
    while True:
        try:
            wanted = {"batch": ask.batch}
            trial = Trial(**compiler.trial(wanted, whole=ask.whole and code, last=ask.last and not parts, parts=parts))
        except ChildError as error:
            return replace(done, problem=_problem("limit", compiler.stage, str(error)))
        except NoAnswerError as error:
            return replace(done, problem=error.error or _died(error.status, compiler.stage))
        if trial.fits and trial.needed_bytes == 0:
            raise ConfigError(
                f"{program.function} computes nothing: no array goes in and none comes out, so there is nothing to "
                f"compile. {_NAME_A_STEP}"
            )
        done = replace(done, trials=(*done.trials, trial))
        try:
            ask = search.send(_need(trial))
        except StopIteration as result:
            return replace(done, largest=result.value)


def _changed(compiler: Compiler, done: Preflight, changes: Callable[[Trial], Iterable[Change]] | None) -> Preflight:
    """With the trials of its changes, as far as there was time and memory for them: what was asked for is known.

    Only the memory of a change counts, so its code is not made, but where that takes less time than a new child.
    """
    if changes is None or done.trial is None or done.problem is not None:
        return done
    wanted = list(changes(done.trial))
    for change in wanted:
        try:
            parts = change.change == "bfloat16"  # of which the temporaries alone count
            trial = Trial(**compiler.trial(asdict(change), whole=False, last=change is wanted[-1], parts=parts))
        except (ChildError, NoAnswerError):
            break
        done = replace(done, changed=(*done.changed, trial))
    return done


def interpreter(given: str | None, environ: Mapping[str, str], module: str = "jax") -> str:
    """The Python that has a module: the one given, this one if it has it, that of the active environment, or `python3`.

    Raises ConfigError where the given one is no program.
    """
    if given is not None:
        found = shutil.which(given)
        if found is None:
            raise ConfigError(f"--python: {given!r} is no program")
        return found
    if find_spec(module) is not None:
        return sys.executable
    active = environ.get("VIRTUAL_ENV")
    return (active and shutil.which(f"{active}/bin/python")) or shutil.which("python3") or sys.executable


def memory_limit(given: int | None, processes: ProcFs | None = None) -> int:
    """The bytes that a child may take: those given, else what the machine has available now.

    Raises ConfigError where that is less than the compiler takes at least.
    """
    available = read_memory(processes or ProcFs(), Path("/"), (), 0).available
    limit = available if given is None else given
    if limit is not None and limit < LEAST_MEMORY:
        where = "is available on this machine" if given is None else "is given by --memory-limit"
        raise ConfigError(
            f"{format_size(limit)} of memory {where}; the compiler takes {format_size(LEAST_MEMORY)} or more"
        )
    return limit if limit is not None else LEAST_MEMORY


def preflight_document(program: Program, results: Iterable[Preflight], python: str) -> PreflightDocument:
    """What was asked and what came of it."""
    return PreflightDocument(function=program.function, python=python, results=tuple(map(_result_document, results)))


def _result_document(result: Preflight) -> PreflightResultDocument:
    return like(
        PreflightResultDocument,
        result,
        tpu=result.target.name,
        topology=result.target.topology,
        chips=result.target.chips,
        largest_batch=result.largest,
        trial=None if result.trial is None else _trial_document(result.trial, result.target),
        trials=tuple(_trial_document(trial, result.target) for trial in result.trials),
        findings=tuple(map(FindingDocument.of, result.findings)),
        problem=None if result.problem is None else {**result.problem, "output": result.output},
    )


def _trial_document(trial: Trial, target: CompileTarget) -> TrialDocument:
    line = roofline_of(trial.graph, target.generation, trial.devices if trial.sharded else 1, trial)
    return like(TrialDocument, trial, flops=flops_of(trial.graph), roofline=line)


def _child(
    program: Program,
    target: CompileTarget,
    command: list[str],
    limits: ChildLimits,
    environ: Mapping[str, str],
    directory: Path,
    *,
    changes: bool,
    since: float,
) -> Child:
    request = {
        "function": program.function,
        "arguments": program.arguments,
        "shapes": program.shapes,
        "donate": program.donate,
        "topology": target.topology,
        "options": target.options,
        "changes": changes,
        "parent": os.getpid(),
    }
    own = {"KERAS_BACKEND": "jax", **environ, **_ENVIRONMENT, LOG_DIR: str(directory / LOGS)}
    own[ARGUMENTS] = merged_all(own.get(ARGUMENTS, ""), UNBUFFERED)  # else the compiler's last words are lost
    own[VMODULE] = ",".join(filter(None, (own.get(VMODULE), MODULES)))
    return Child(command, request, environ=own, output=directory / OUTPUT, limits=limits, since=since)


def _once(batch: int | None) -> Generator[Ask, Need, int | None]:
    """The search where there is nothing to search for."""
    yield Ask(batch, whole=True, last=True)
    return None


def _need(trial: Trial) -> Need:
    return Need(trial.fits, trial.needed_bytes, trial.available_bytes, whole=trial.unfinished is None)


def _died(status: int | None, stage: str) -> dict[str, Any]:
    how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
    return _problem("died", stage, f"the child process ended without an answer ({how})")


def _problem(kind: str, stage: str, message: str) -> dict[str, Any]:
    return {"kind": kind, "stage": stage, "message": message, "place": None}
