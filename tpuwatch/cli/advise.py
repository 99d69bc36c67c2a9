"""`tpuwatch advise`: what to change in a program so that it does better on a TPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.cli import options, preflight

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tpuwatch.advise import CodeAdvice, Subject
    from tpuwatch.model import AdviceDocument, ProfileFigures
    from tpuwatch.program import CompileTarget


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "tpuwatch advise MODULE:FUNCTION --args MODULE:FACTORY\n"
        "                       --tpu TYPE [--batch N]\n"
        "       tpuwatch advise --shape f32[1024,100] [--shape ...] [--tpu TYPE]\n"
        "       tpuwatch advise OUT_OF_MEMORY.log [--tpu TYPE]\n"
        "       tpuwatch advise --profile FILE|DIR [--tpu TYPE]"
    )
    parser.add_argument(
        "program",
        nargs="?",
        metavar="PROGRAM",
        help="as preflight takes it: MODULE:FUNCTION of a JAX function, a Keras model, a tf.function or a program of "
        "PyTorch, or a file of StableHLO; or a log with the report of a compiler that ran out of memory; or none, with "
        "--shape",
    )
    preflight.add_program_arguments(parser, tpu_required=False)
    parser.add_argument("--batch", type=preflight.positive, metavar="N", help="passed to the factory as batch")
    preflight.add_child_arguments(parser)
    parser.add_argument(
        "--quick", action="store_true", help="compile the program as it is, and no changes of it that may take less HBM"
    )
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="FILE",
        help="another source file to read, such as that of the input pipeline; may be given again",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE|DIR",
        help="a profile of a run (*.xplane.pb, or a directory: the newest in it), by itself or beside the program: "
        "what it measured counts before what is estimated",
    )
    parser.add_argument(
        "--profile-python", metavar="FILE", help="the interpreter that has xprof (default: this environment's)"
    )
    parser.add_argument("--html", metavar="FILE", help="write all of it, with plots, to one HTML page")
    parser.add_argument("--verbose", action="store_true", help="all findings, not the first ten")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0: what was checked is said; 1: the program does not fit, or is wrong; 2: wrong use; 3: no answer, or nothing
    could be checked."""
    from tpuwatch.advise import advice_page
    from tpuwatch.core import ConfigError
    from tpuwatch.terminal import print_advice

    if args.program is None and not args.shape and not args.source and args.profile is None:
        raise ConfigError(
            "name a program (MODULE:FUNCTION), a log, shapes (--shape), a source file (--source) or a profile "
            "(--profile)"
        )
    if args.profile_python is not None and args.profile is None:
        raise ConfigError("--profile-python reads a profile: name one with --profile")
    if args.html is not None and not Path(args.html).absolute().parent.is_dir():  # said before minutes of compilation
        raise ConfigError(f"--html {args.html}: there is no such directory")
    status, document = _advised(args)
    if args.html is not None:
        try:
            Path(args.html).write_text(advice_page(document), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--html {args.html}: {error.strerror}") from error
    options.show(document, print_advice, as_json=args.json, verbose=args.verbose)
    return status


def _advised(args: argparse.Namespace) -> tuple[int, AdviceDocument]:
    """The exit status, and the document of all targets."""
    from tpuwatch.core import ConfigError
    from tpuwatch.libtpu import generation
    from tpuwatch.program import target

    figures = _profile(args)
    if args.program is not None and (":" in args.program or args.program.endswith(preflight.STABLEHLO)):
        if not args.tpu:
            raise ConfigError("--tpu: say for which TPU, such as --tpu v6e-4")
        return _of_program(args, figures)
    measured = generation(figures.hardware) if figures is not None else ""
    names = args.tpu or [f"{measured or 'v5e'}-1"]
    targets = [target(name, args.slices) for name in names]
    if args.program is not None:
        name, subjects = args.program, [_of_log(args.program, one) for one in targets]
    else:
        name = ", ".join(args.shape) or ", ".join(args.source) or str(args.profile)
        subjects = [_of_shapes(args, one) for one in targets]
    found = [(one, subject, None) for one, subject in zip(targets, subjects, strict=True)]
    document = _document(args, name, found, figures)
    return 0 if all(result.checked for result in document.results) else 3, document


def _profile(args: argparse.Namespace) -> ProfileFigures | None:
    """What a profile shows, read before anything is compiled: a wrong path is said at once."""
    if args.profile is None:
        return None
    from tpuwatch.cli.profile import read

    return read(args.profile, args.profile_python, args.timeout).figures


def _of_program(args: argparse.Namespace, figures: ProfileFigures | None) -> tuple[int, AdviceDocument]:
    from tpuwatch.advise import changes, of_program
    from tpuwatch.program import target

    targets = [target(name, args.slices) for name in args.tpu]
    wanted = (lambda _: ()) if args.quick else changes
    results = preflight.compiled(args, args.program, targets, batch=args.batch, code=False, changes=wanted)
    document = _document(args, args.program, [(one.target, of_program(one), one.fits) for one in results], figures)
    return preflight.status(results), document


def _of_log(path: str, one: CompileTarget) -> Subject:
    """What the report in a log names, in the HBM of the target."""
    from tpuwatch.advise import of_report
    from tpuwatch.core import ConfigError, TpuwatchError
    from tpuwatch.program import findings_of

    try:
        findings = findings_of(Path(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except OSError as error:
        raise TpuwatchError(f"{path}: {error.strerror}") from error
    subject = of_report(findings, one)
    if not subject.tensors and path.endswith((".py", ".ipynb")):
        raise ConfigError(f"{path} is source code: give it as --source {path}, or the program in it as MODULE:FUNCTION")
    if not subject.tensors:
        raise ConfigError(f"{path}: no compiler's report of allocations is in it; tpuwatch diagnose says what else is")
    return subject


def _of_shapes(args: argparse.Namespace, one: CompileTarget) -> Subject:
    from tpuwatch.advise import of_shapes
    from tpuwatch.core import ConfigError

    try:
        return of_shapes(args.shape, one, args.batch)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _document(
    args: argparse.Namespace,
    name: str,
    found: Sequence[tuple[CompileTarget, Subject, bool | None]],
    figures: ProfileFigures | None,
) -> AdviceDocument:
    """`found`: each target with what there is to advise on, and whether that fits."""
    from tpuwatch.advise import advice_document, advise
    from tpuwatch.model import AdviceDocument

    results = []
    for one, subject, fits in found:
        about = replace(subject, profile=figures)
        results.append(advice_document(one, about, advise(about, _of_code(args, subject)), fits))
    return AdviceDocument(subject=name, results=tuple(results))


def _of_code(args: argparse.Namespace, subject: Subject) -> CodeAdvice:
    """What the user's sources show: the module that is named and what it imports from here, and --source."""
    from tpuwatch.advise import code_advice, module_file, sources, unreadable
    from tpuwatch.core import ConfigError

    here = Path.cwd()
    starts = [Path(name) for name in args.source]
    for path in starts:
        if not path.is_file():
            raise ConfigError(f"--source {path}: no such file")
        if reason := unreadable(path):
            raise ConfigError(f"--source {path}: {reason}")
    for name in filter(None, (args.program, args.args)):
        module = module_file(name.partition(":")[0], here) if ":" in name else None
        starts += [] if module is None else [module]
    paths = list(dict.fromkeys(path for start in starts for path in sources(start, here)))
    step = {args.program.rpartition(":")[2]} if args.program is not None and ":" in args.program else set()
    return code_advice(paths, batch=subject.batch, devices=subject.devices, steps=step)
