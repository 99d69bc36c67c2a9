"""`tpuwatch support`: what is needed to help, in one file, without secrets."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse

    from tpuwatch.config import Config
    from tpuwatch.web import DaemonAddress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Secrets, e-mail addresses, user names and home directories are taken out. Nothing is sent to anybody: look at "
        "the file first, then attach it. With sudo it has more: the store, the daemon's log, its audit"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the file to write; it must not exist (default: tpuwatch-support-TIME.tar.gz, here)",
    )
    parser.add_argument(
        "--redact-project",
        action="store_true",
        help="take the ids of projects out too: Google's support needs them, a public issue does not",
    )
    options.add_config(parser)
    options.add_json(parser, "print the manifest as JSON")


def run(args: argparse.Namespace) -> int:
    """0 when the file is written, whatever of it could not be had; 3 when it is not."""
    from tpuwatch.core import SystemClock
    from tpuwatch.support import (
        Archive,
        Redactor,
        Sources,
        ask_documents,
        collect,
        people,
        projects,
        write_archive,
    )

    now = SystemClock().time()
    config, error, address = _configuration(args)
    documents, failed = ask_documents(address)
    redactor = Redactor(people(documents), projects(documents, config) if args.redact_project else ())
    name = f"tpuwatch-support-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}"
    archive = Archive(name, redactor, now)
    collect(archive, Sources(config, error, address), documents, failed)
    path: Path = args.output or Path(f"{name}.tar.gz")
    data = archive.pack()
    write_archive(path, data)
    if args.json:
        options.print_json({"file": str(path), "bytes": len(data), **archive.manifest()})
    else:
        _print(path, len(data), archive.manifest())
    return 0


def _configuration(args: argparse.Namespace) -> tuple[Config | None, str, DaemonAddress]:
    """The configuration, or why there is none; and the daemon's address."""
    from tpuwatch.config import Config
    from tpuwatch.core import ConfigError
    from tpuwatch.web import daemon_address

    try:
        config = options.load(args)
    except ConfigError as error:  # the archive says so; what else there is may tell why
        return None, str(error), daemon_address(Config())
    return config, "", daemon_address(config)


def _print(path: Path, size: int, manifest: dict[str, Any]) -> None:
    from tpuwatch.core import format_size, printable
    from tpuwatch.terminal import Console

    console = Console(sys.stdout)
    console.line(f"{path}: {format_size(size)}, readable by you alone. It holds", style="bold")
    for one in manifest["files"]:
        cut = f" ({one['cut']})" if one["cut"] else ""
        console.line(f"{one['name']:<19} {format_size(one['bytes']):>10}  {one['what']}{cut}", indent=2, hang=33)
    if manifest["missing"]:
        console.line("It lacks", style="bold")
    names: dict[str, list[str]] = {}
    for one in manifest["missing"]:
        names.setdefault(one["why"], []).append(one["name"])
    for why, missing in names.items():
        console.line(f"{', '.join(missing)}: {printable(why)}", indent=2, hang=2)
    taken = ", ".join(f"{kind} ({number})" for kind, number in manifest["taken_out"].items())
    console.line(f"Taken out: {taken or 'nothing'}")
    console.line("Nothing was sent. Look at it before you send it to anybody:", style="yellow")
    console.row(f"  tar -xzf {path}")
