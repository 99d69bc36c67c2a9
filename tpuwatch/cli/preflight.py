"""`tpuwatch preflight`: does a program fit on a TPU?"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from tpuwatch.program import Change, CompileTarget, Preflight, Trial

STABLEHLO = (".mlir", ".stablehlo", ".mlirbc")  # how a file's name ends that holds it
_TIMEOUT_SECONDS = 1800.0
_MAX_BATCH = 65536


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "tpuwatch preflight MODULE:FUNCTION --args MODULE:FACTORY\n"
        "                          --tpu TYPE [--tpu TYPE ...] [--batch N]\n"
        "       tpuwatch preflight MODULE:FUNCTION --shape f32[64,128] [--shape ...]\n"
        "                          --tpu TYPE"
    )
    parser.add_argument(
        "function",
        metavar="MODULE:FUNCTION",
        help="a JAX function or training step, plain or jitted; a Keras model or a module of PyTorch, or a "
        "function that makes one; a tf.function; a training step of PyTorch; or a file of StableHLO (.mlir)",
    )
    add_program_arguments(parser, tpu_required=True)
    batches = parser.add_mutually_exclusive_group()
    batches.add_argument("--batch", type=positive, metavar="N", help="passed to the factory as batch")
    batches.add_argument(
        "--max-batch",
        type=positive,
        nargs="?",
        const=_MAX_BATCH,
        metavar="N",
        help=f"search for the largest batch that fits, up to N (default: {_MAX_BATCH})",
    )
    parser.add_argument(
        "--batch-step", type=positive, default=8, metavar="N", help="which batch is a multiple of N (default: 8)"
    )
    parser.add_argument(
        "--no-code",
        dest="code",
        action="store_false",
        help="do not wait for the code, which takes most of the time: whether the memory suffices is known before",
    )
    add_child_arguments(parser)
    options.add_json(parser)


def add_program_arguments(parser: argparse.ArgumentParser, *, tpu_required: bool) -> None:
    """The program's arguments, and the TPUs to compile it for: for all commands that do."""
    arguments = parser.add_mutually_exclusive_group()
    arguments.add_argument(
        "--args",
        metavar="MODULE:FACTORY",
        help="a function that returns the arguments, or shapes for them: a tuple, or a dict by name; it may take "
        "batch, and mesh or devices to spread them over the TPU's devices",
    )
    arguments.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="SHAPE",
        help="the shape of the next argument, such as bf16[64,1024]",
    )
    parser.add_argument(
        "--tpu",
        action="append",
        required=tpu_required,
        default=None if tpu_required else [],
        metavar="TYPE",
        help="an accelerator type such as v6e-4, or a topology such as v6e:2x2; may be given again",
    )
    parser.add_argument("--slices", type=positive, default=1, metavar="N", help="so many slices of it (default: 1)")
    parser.add_argument(
        "--donate",
        type=_numbers,
        default=(),
        metavar="N[,N]",
        help="numbers of the arguments whose memory the results may take, as jax.jit's donate_argnums",
    )


def add_child_arguments(parser: argparse.ArgumentParser) -> None:
    """In which interpreter it is compiled, and for how much time and memory."""
    parser.add_argument(
        "--python",
        metavar="FILE",
        help="the interpreter that has JAX and libtpu, for PyTorch torchax too (default: this environment's)",
    )
    parser.add_argument(
        "--timeout", type=float, default=_TIMEOUT_SECONDS, metavar="S", help="seconds for each TPU (default: 1800)"
    )
    parser.add_argument(
        "--memory-limit", type=_size, metavar="SIZE", help="of this machine's memory (default: what is available now)"
    )


def run(args: argparse.Namespace) -> int:
    """0: it fits on all; 1: it does not, or is wrong; 2: wrong use; 3: there is no answer."""
    from tpuwatch.program import Program, interpreter, preflight_document, target
    from tpuwatch.terminal import print_preflight

    targets = [target(name, args.slices) for name in args.tpu]
    results = compiled(
        args, args.function, targets, batch=args.batch, up_to=args.max_batch, step=args.batch_step, code=args.code
    )
    program = Program(args.function, args.args, tuple(args.shape), args.donate)
    document = preflight_document(program, results, interpreter(args.python, os.environ))
    options.show(document, print_preflight, as_json=args.json)
    return status(results)


def compiled(
    args: argparse.Namespace,
    function: str,
    targets: Sequence[CompileTarget],
    *,
    batch: int | None,
    up_to: int | None = None,
    step: int = 1,
    code: bool = True,
    changes: Callable[[Trial], Iterable[Change]] | None = None,
) -> list[Preflight]:
    """What the compiler says for each target, with progress on a terminal. Raises ConfigError for a missing file."""
    from tpuwatch.core import ConfigError
    from tpuwatch.program import ChildLimits, Program, interpreter, memory_limit, run_preflight
    from tpuwatch.terminal import StageLine

    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: the child is ended, and its directory removed
        signal.signal(number, signal.default_int_handler)
    if function.endswith(STABLEHLO) and not Path(function).is_file():
        raise ConfigError(f"{function}: there is no such file")
    python = interpreter(args.python, os.environ)
    limits = ChildLimits(args.timeout, memory_limit(args.memory_limit))
    program = Program(function, args.args, tuple(args.shape), args.donate)
    results: list[Preflight] = []
    for one in targets:
        progress = StageLine(one.name)
        try:
            result = run_preflight(
                program,
                one,
                batch=batch,
                up_to=up_to,
                step=step,
                code=code,
                python=python,
                limits=limits,
                environ=os.environ,
                on_stage=progress.show,
                changes=changes,
            )
        finally:
            progress.clear()
        results.append(result)
    return results


def status(results: Sequence[Preflight]) -> int:
    """1: a program does not fit, or is wrong; 3: of one there is no answer; else 0."""
    if any(result.fits is False or _wrong(result) for result in results):
        return 1
    return 3 if any(result.fits is None for result in results) else 0


def _wrong(result: Preflight) -> bool:
    return result.problem is not None and result.problem["kind"] == "program"


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _size(text: str) -> int:
    from tpuwatch.core import parse_size

    return parse_size(text)


positive.__name__, _numbers.__name__, _size.__name__ = "number from 1 on", "list of numbers", "size"
