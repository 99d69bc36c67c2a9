"""Options and output that several commands share."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from tpuwatch.config import Config


def add_config(parser: argparse.ArgumentParser) -> None:
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


def load(args: argparse.Namespace) -> Config:
    """The configuration of --config, the environment or the default path. Raises ConfigError."""
    from tpuwatch.config import load_config

    return load_config(args.config, os.environ)


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """One JSON document on standard output."""
    from tpuwatch.core import dumps

    sys.stdout.write(dumps(document, indent=indent) + "\n")
    sys.stdout.flush()
