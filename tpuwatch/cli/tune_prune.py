"""`tpuwatch tune --prune-logs`: remove libtpu's old log files, which libtpu never does."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.cli import options
from tpuwatch.cli.tune_show import paper_for
from tpuwatch.clock import SystemClock
from tpuwatch.errors import TuneError
from tpuwatch.export.terminal import printable
from tpuwatch.jsontext import times
from tpuwatch.processes import ProcFs
from tpuwatch.tune.retention import prune
from tpuwatch.units import format_size

if TYPE_CHECKING:
    import argparse

    from tpuwatch.config import Config
    from tpuwatch.export.paper import Paper
    from tpuwatch.tune.retention import Old, Pruned

_SHOWN: Final = 20  # files of each kind, where a person reads


def run(args: argparse.Namespace, config: Config) -> int:
    """Always 0. Raises TuneError where no directory could be looked into. Other users' files are left to root."""
    directories = list(dict.fromkeys((*config.logs.paths, config.tune.log_dir)))
    uid = os.geteuid()
    pruned = prune(
        directories,
        days=config.tune.keep_log_days,
        mib=config.tune.keep_log_mib,
        now=SystemClock().time(),
        uid_only=None if uid == 0 else uid,
        processes=ProcFs(),
        dry_run=args.dry_run,
    )
    if len(pruned.problems) == len(directories):
        raise TuneError(" ".join(pruned.problems))
    if args.json:
        options.print_json(_document(pruned, dry=args.dry_run))
    else:
        _tell(paper_for(sys.stdout), pruned, dry=args.dry_run)
    return 0


def _document(pruned: Pruned, *, dry: bool) -> dict[str, Any]:
    return {
        "dry_run": dry,
        "removed": [_old(old) for old in pruned.removed],
        "spared": [_old(old) for old in pruned.spared],
        "freed_bytes": pruned.freed_bytes,
        "left_bytes": pruned.left_bytes,
        "problems": list(pruned.problems),
    }


def _old(old: Old) -> dict[str, Any]:
    return {
        "path": old.path,
        "size_bytes": old.size,
        **times("written", old.written),
        "why": old.why,
        "spared": old.spared.value if old.spared else None,
    }


def _tell(paper: Paper, pruned: Pruned, *, dry: bool) -> None:
    for old in pruned.removed[:_SHOWN]:
        when = time.strftime("%Y-%m-%d", time.localtime(old.written))
        paper.row(f"{'would remove' if dry else 'removed'}  {when}  {format_size(old.size):>10}  {printable(old.path)}")
    if len(pruned.removed) > _SHOWN:
        paper.line(f"… and {len(pruned.removed) - _SHOWN} more", style="dim")
    for old in pruned.spared[:_SHOWN]:
        paper.line(printable(f"spared {old.path}: {old.spared.value if old.spared else ''}"), style="dim", hang=2)
    if len(pruned.spared) > _SHOWN:
        paper.line(f"… and {len(pruned.spared) - _SHOWN} more spared", style="dim")
    for problem in pruned.problems:
        paper.line(printable(problem), style="yellow")
    paper.line(pruned.told().replace("Removed", "Would remove") if dry else pruned.told())
