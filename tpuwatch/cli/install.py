"""`tpuwatch install`: put this environment's tpuwatch in place as a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tpuwatch.install import InstallStep

_DONE, _WRONG = 0, 1
_EPILOG = (
    "It never replaces a configuration. A unit that was changed is kept beside the new one. Run it again after an "
    "upgrade of the package: it restarts the service. To remove what it did: tpuwatch uninstall."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.epilog = _EPILOG
    add_dry_run(parser)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print the steps, and do nothing")
    options.add_json(parser, "print the steps as JSON")


def run(args: argparse.Namespace) -> int:
    """0 done, 1 if a step failed. An InstallError says why none was begun; a ConfigError, what is wrong in the file."""
    from tpuwatch.config import SYSTEM_PATH, load_config
    from tpuwatch.install import InstallHost, install_steps

    host = InstallHost()
    host.require_no_package()
    host.require_program()
    if not args.dry_run:
        host.require_systemd()
    if host.path(str(SYSTEM_PATH)).exists():
        load_config(host.path(str(SYSTEM_PATH)), {})  # the service would not start with a wrong one
    failed = take(install_steps(host), args)
    if not failed and not args.json and not args.dry_run:
        print(f"tpuwatch runs. `{host.program} status` shows this node, `{host.program} doctor` checks its setup.")
        print("To have old logs of libtpu removed once a day: `sudo systemctl enable --now tpuwatch-prune.timer`")
    return _WRONG if failed else _DONE


def take(steps: Iterator[InstallStep], args: argparse.Namespace) -> bool:
    """Print and, unless this is a dry run, do each step until one fails; whether one failed."""
    from tpuwatch.core import InstallError, printable

    printed, failure = [], ""
    for step in steps:
        printed.append(step.text)
        if not args.json:
            print(printable(step.text), flush=True)
        try:
            if not args.dry_run:
                step.do()
        except InstallError as error:
            failure = str(error)
            break
    if args.dry_run and not args.json:
        print("Nothing was done.")
    if args.json:
        options.print_json({"dry_run": args.dry_run, "steps": printed, "error": failure or None})
    if failure:
        options.print_note(failure)
    return bool(failure)
