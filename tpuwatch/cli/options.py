"""Options and output that several commands share."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from tpuwatch.config import Config
    from tpuwatch.core import DeniedError, TpuwatchError


def add_config(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration; else $TPUWATCH_CONFIG, else /etc/tpuwatch/config.toml, else the defaults",
    )


def add_json(parser: argparse.ArgumentParser, text: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=text)


def add_workload(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--workload", type=workload, metavar="NAME", help=text)


def workload(text: str) -> str:
    """The type of an option that names a workload."""
    import argparse

    from tpuwatch.core import TuneError
    from tpuwatch.tune import workload_name

    try:
        return workload_name(text, {})
    except TuneError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def since(text: str) -> float:
    """The type of an option that names a time, or how long ago it was."""
    import argparse
    import time

    from tpuwatch.core import parse_seconds, parse_time

    try:
        return parse_time(text)
    except ValueError:
        pass
    try:
        return time.time() - parse_seconds(text.removesuffix("ago").strip())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 2h, 30m, 2026-11-20T13:00:00Z or seconds since the epoch"
        ) from None


def load(args: argparse.Namespace) -> Config:
    """The configuration of --config, the environment or the default path. Raises ConfigError."""
    from tpuwatch.config import load_config

    return load_config(args.config, os.environ)


@contextmanager
def config_to_look(args: argparse.Namespace) -> Iterator[tuple[Config, str]]:
    """The configuration for a command that changes nothing, and "".

    Where this user may not read it, the defaults, and why: a sentence that an error of the command ends with. Raises
    ConfigError for one that is wrong, or was named.
    """
    from tpuwatch.config import Config
    from tpuwatch.core import ConfigDeniedError, DeniedError, TpuwatchError

    try:
        config, unread = load(args), ""
    except ConfigDeniedError as error:
        config, unread = Config(), str(error)
    try:
        yield config, unread
    except TpuwatchError as error:
        if not unread or isinstance(error, DeniedError):
            raise
        raise TpuwatchError(f"{error}; {unread}") from error


def denied_and_unanswered(denied: object, error: TpuwatchError) -> DeniedError:
    """That this user may not read a file, and that the daemon, which has the same, does not answer either."""
    from tpuwatch.core import DeniedError

    return DeniedError(f"{denied}, and {str(error).partition(';')[0]}")


def print_note(sentence: str) -> None:
    """A sentence on standard error, beside what a command prints. No terminal obeys it, whoever wrote a part of it."""
    from tpuwatch.core import printable_lines

    print(f"tpuwatch: {printable_lines(sentence)}", file=sys.stderr)


def show(document: Any, printer: Callable[..., None], *, as_json: bool, **more: Any) -> None:
    """A document as JSON, or as `printer` prints it for a person, with `more` of its arguments."""
    from tpuwatch.core import encode
    from tpuwatch.terminal import Console

    if as_json:
        print_json(encode(document))
    else:
        printer(Console(sys.stdout), document, **more)


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """One JSON document on standard output."""
    from tpuwatch.core import dumps

    sys.stdout.write(dumps(document, indent=indent) + "\n")
    sys.stdout.flush()
