"""`tpuwatch uninstall`: remove what `tpuwatch install` put in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.cli import install

if TYPE_CHECKING:
    import argparse

_EPILOG = "State, configuration, user and the package itself stay; the commands that remove them are printed."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.epilog = _EPILOG
    install.add_dry_run(parser)


def run(args: argparse.Namespace) -> int:
    """0 done, 1 if a step failed. An InstallError says why none was begun."""
    from tpuwatch.install import InstallHost, leftovers, uninstall_steps

    host = InstallHost()
    if not args.dry_run:
        host.require_systemd()
    failed = install.take(uninstall_steps(host), args)
    left = leftovers(host)
    if left and not failed and not args.json:
        print("State, configuration and user stay. To remove them too:")
        for command in left:
            print(f"  sudo {command}")
    return 1 if failed else 0
