"""`tpuwatch preflight`: does a program fit on a TPU?"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse

    from tpuwatch.program import Preflight

_TIMEOUT_SECONDS = 1800.0
_LINE_SECONDS = 1.0
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
        help="a JAX function or training step, plain or jitted; a Keras model, or a function that makes one; a "
        "tf.function; or a file of StableHLO (.mlir)",
    )
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
        required=True,
        metavar="TYPE",
        help="an accelerator type such as v6e-4, or a topology such as v6e:2x2; may be given again",
    )
    parser.add_argument("--slices", type=_positive, default=1, metavar="N", help="so many slices of it (default: 1)")
    batches = parser.add_mutually_exclusive_group()
    batches.add_argument("--batch", type=_positive, metavar="N", help="passed to the factory as batch")
    batches.add_argument(
        "--max-batch",
        type=_positive,
        nargs="?",
        const=_MAX_BATCH,
        metavar="N",
        help=f"search for the largest batch that fits, up to N (default: {_MAX_BATCH})",
    )
    parser.add_argument(
        "--batch-step", type=_positive, default=8, metavar="N", help="which batch is a multiple of N (default: 8)"
    )
    parser.add_argument(
        "--donate",
        type=_numbers,
        default=(),
        metavar="N[,N]",
        help="numbers of the arguments whose memory the results may take, as jax.jit's donate_argnums",
    )
    parser.add_argument(
        "--python", metavar="FILE", help="the interpreter that has JAX and libtpu (default: this environment's)"
    )
    parser.add_argument(
        "--timeout", type=float, default=_TIMEOUT_SECONDS, metavar="S", help="seconds for each TPU (default: 1800)"
    )
    parser.add_argument(
        "--memory-limit", type=_size, metavar="SIZE", help="of this machine's memory (default: what is available now)"
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0: it fits on all; 1: it does not, or is wrong; 2: wrong use; 3: there is no answer."""
    from tpuwatch.program import (
        ChildLimits,
        Program,
        interpreter,
        memory_limit,
        preflight_document,
        run_preflight,
        target,
    )
    from tpuwatch.terminal import Console, print_preflight

    targets = [target(name, args.slices) for name in args.tpu]
    python = interpreter(args.python, os.environ)
    limits = ChildLimits(args.timeout, memory_limit(args.memory_limit))
    program = Program(args.function, args.args, tuple(args.shape), args.donate)
    results: list[Preflight] = []
    for one in targets:
        progress = _Progress(one.name)
        try:
            result = run_preflight(
                program,
                one,
                batch=args.batch,
                up_to=args.max_batch,
                step=args.batch_step,
                python=python,
                limits=limits,
                environ=os.environ,
                on_stage=progress.show,
            )
        finally:
            progress.clear()
        results.append(result)
    document = preflight_document(program, results, python)
    if args.json:
        options.print_json(document)
    else:
        print_preflight(Console(sys.stdout), document)
    if any(result.fits is False or _wrong(result) for result in results):
        return 1
    return 3 if any(result.fits is None for result in results) else 0


def _wrong(result: Preflight) -> bool:
    return result.problem is not None and result.problem["kind"] == "program"


class _Progress:
    """On a terminal: for which TPU, at which stage, and for how long already."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._started = self._next = time.monotonic()
        self._wanted = sys.stderr.isatty()

    def show(self, stage: str) -> None:
        now = time.monotonic()
        if self._wanted and now >= self._next:
            self._next = now + _LINE_SECONDS
            sys.stderr.write(f"\r\x1b[K{self._name}: {stage}, {now - self._started:.0f} s")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._wanted:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _size(text: str) -> int:
    from tpuwatch.core import parse_size

    return parse_size(text)


_positive.__name__, _numbers.__name__, _size.__name__ = "number from 1 on", "list of numbers", "size"
