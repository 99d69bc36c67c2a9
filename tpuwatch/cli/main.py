"""The command line. Each command is a module of this package, imported when it is used."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from tpuwatch import __version__
from tpuwatch.core import ConfigError, DeniedError, InstallError, RuleError, TpuwatchError, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DONE, WRONG, MISUSED, UNKNOWN = 0, 1, 2, 3  # exit codes
_INTERRUPTED = 130  # the exit code by convention after Ctrl-C

COMMANDS = {
    "run": "watch this TPU VM: follow its logs, store what they report, serve it",
    "diagnose": "find what is wrong in any log, traceback or paste, and what to do",
    "status": "show what the daemon on this machine knows",
    "top": "show what one daemon or several know, on the whole screen, kept up to date",
    "nodes": "list all watched nodes, those that need attention first",
    "doctor": "check what tpuwatch and a TPU job need, and print the fix",
    "support": "put what is needed to help into one file, without secrets",
    "events": "list what was recognised in the logs",
    "goodput": "show where the time of trainings went",
    "env": "print the environment that the next launch should have",
    "exec": "run a command with the environment that was decided for it, and watch it",
    "restart": "restart a node safely",
    "restarts": "show restarts in progress and past ones, cancel one, reset the breaker",
    "tune": "decide the environment of the next launch, and show why",
    "preflight": "compile a program for a TPU that is not here: does it fit?",
    "advise": "what to change in a program: padding, matrix units, memory, input",
    "probe": "find out whether the TPU, the software or the program is at fault",
    "profile": "read a trace: where a program's time goes, and what to change",
    "config": "check or show the configuration",
    "install": "set tpuwatch up as a systemd service",
    "uninstall": "remove that service",
    "sim": "simulate a cloud and its TPU VMs, for tpuwatch to watch",
    "demo": "see it at work on a simulated TPU VM",
    "completion": "print what has bash or zsh complete commands and options",
}
_WORDS = {"help": "--help", "version": "--version"}
_EPILOG = (
    "exit codes: 0 done, 1 something is wrong (where a command judges), 2 wrong use or configuration, or a file that "
    "does not exist, 3 could not find out"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, as listed in the help."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # Where one of them is closed Python has none, and would print to the other what is for that one. No descriptor is
    # opened in its place: it would be the closed one, which `tpuwatch exec` leaves closed for the command.
    sys.stdout, sys.stderr = sys.stdout or io.StringIO(), sys.stderr or io.StringIO()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter is no reason to fail
    try:
        return _run(arguments)
    except (ConfigError, InstallError, RuleError, _UsageError) as error:
        return _fail(error, MISUSED, arguments)
    except TpuwatchError as error:
        return _fail(error, UNKNOWN, arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        _drop_output()
        return DONE
    except OSError as error:  # standard output is a full disk: other places name what they cannot do
        _drop_output()
        return _fail(TpuwatchError(f"cannot write to standard output: {error.strerror}"), UNKNOWN, arguments)


def _run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in _WORDS:  # as people know them from other programs
        arguments = [*arguments[1:], _WORDS[arguments[0]]]
    if arguments and arguments[0] == "restarts":
        from tpuwatch.cli import restarts

        arguments = ["restarts", *restarts.with_action(arguments[1:])]
    parser = _parser(arguments)
    args = parser.parse_args(arguments)
    if args.command is None:
        parser.print_help()
        return DONE
    return int(args.run(args))


def _drop_output() -> None:
    """Have what is still to be written to standard output go nowhere."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def whole_parser() -> argparse.ArgumentParser:
    """The parser with the arguments of all commands."""
    parser, commands = _bare_parser()
    for name in COMMANDS:
        _add_command(commands, name, with_arguments=True)
    return parser


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser, commands = _bare_parser()
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    # Where the first word is a command, nobody asks for the others; each costs half a millisecond.
    names = [wanted] if wanted in COMMANDS and wanted == arguments[0] else COMMANDS
    for name in names:
        _add_command(commands, name, with_arguments=name == wanted)  # the others cost their import
    return parser


def _bare_parser() -> tuple[_Parser, Any]:
    """The program's own parser, and what takes its commands."""
    parser = _Parser(prog="tpuwatch", description="Keeps Cloud TPU VMs training.", epilog=_EPILOG)
    parser.add_argument("-V", "--version", action="version", version=f"tpuwatch {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_Parser)
    return parser, commands


def _add_command(commands: Any, name: str, *, with_arguments: bool) -> None:
    text = COMMANDS[name]
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    if with_arguments:
        module = import_module(f"tpuwatch.cli.{name}")
        module.add_arguments(command)
        command.set_defaults(run=module.run)


def _fail(error: Exception, code: int, arguments: Sequence[str]) -> int:
    """Print an error on standard error, and where JSON was asked for, as JSON too."""
    usage = isinstance(error, _UsageError)  # names the command that was meant
    text = f"{error}: run the same command with sudo" if isinstance(error, DeniedError) else str(error)
    text = printable_lines(text)
    print(text if usage else f"tpuwatch: {text}", file=sys.stderr)
    if "--json" in arguments and arguments[0] != "exec":  # there it may be the command's
        from tpuwatch.cli.options import print_json

        try:
            print_json({"error": text, "exit_code": code})
        except OSError:  # it is on standard error
            _drop_output()
    return code


class _UsageError(Exception):
    """Words that no command understands."""


class _Parser(argparse.ArgumentParser):
    """argparse, but a wrong word is answered with the nearest right one, and by the command that was meant."""

    def parse_known_args(  # type: ignore[override] # the overloads are argparse's
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Of each command, its own: argparse would have the program itself report what is left over."""
        found, others = super().parse_known_args(args, namespace)
        if others:
            self.error(f"{_unknown(others[0], self._option_string_actions)}\n{self.format_usage().rstrip()}")
        return found, others

    def error(self, message: str) -> NoReturn:
        if choice := re.fullmatch(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)", message, re.DOTALL):
            where, word, known = choice.groups()
            if self.prog == "tpuwatch":
                message = f"there is no command {word!r}{_nearest(word, COMMANDS)}"
            else:
                choices = re.findall(r"[^\s,']+", known)
                message = f"argument {where}: there is no {word!r}{_nearest(word, choices)}"
        elif bad := re.fullmatch(r"argument (\S+): invalid (\w+ .*?) value: ('.*')", message, re.DOTALL):
            where, wanted, word = bad.groups()
            message = f"argument {where}: {word} is no {wanted}"
        raise _UsageError(f"{self.prog}: {message}\nTry '{self.prog} --help'.")


def _unknown(word: str, options: Iterable[str]) -> str:
    if not word.startswith("-"):
        return f"{word!r} is one word too many"
    name = word.partition("=")[0]
    known = sorted(one for one in options if one.startswith("--"))
    return f"there is no option {name!r}{_nearest(name, known)}"


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib

    known = list(known)
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
