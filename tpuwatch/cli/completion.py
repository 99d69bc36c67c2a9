"""`tpuwatch completion`: what has a shell complete the commands, their options and the values of these."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELLS: Final = ("bash", "zsh")
_EPILOG: Final = (
    'In bash: eval "$(tpuwatch completion bash)", in ~/.bashrc or at once. In zsh: tpuwatch completion zsh > '
    "_tpuwatch, into a directory of $fpath. Names of nodes and of workloads are not completed: each would take a "
    "question to the daemon."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print the script for the shell."""
    import shtab

    from tpuwatch.cli.main import whole_parser

    parser = whole_parser()
    places = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY, "PATH": shtab.FILE}
    for action in _actions(parser):
        if action.metavar in places and action.choices is None:
            action.complete = places[str(action.metavar)]
    sys.stdout.write(shtab.complete(parser, shell=args.shell) + "\n")
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
    """All arguments of the parser and of the parsers below it."""
    for action in parser._actions:  # noqa: SLF001 (argparse has no other way to them)
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below in action.choices.values():
                yield from _actions(below)
