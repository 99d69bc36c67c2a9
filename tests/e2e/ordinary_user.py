"""Commands run by any user, in a process of their own.

`python -m tests.e2e.ordinary_user UID` reads a list of commands as JSON from standard input, and prints what became of
each: its exit code, its standard output, its standard error.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pkgutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import tpuwatch
from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NOBODY = 65534
_SECONDS = 120.0


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def run_as(uid: int, commands: Sequence[Sequence[str]], root: Path, environ: Mapping[str, str]) -> list[Ended]:
    """What becomes of these commands of the user, one after the other, in the directory `root`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.ordinary_user", str(uid)],
        input=json.dumps(commands),
        cwd=root,
        env={**environ, "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Ended(*one) for one in json.loads(done.stdout)]


def _import_all() -> None:
    """The interpreter itself may lie where only root may read: nothing can be imported later."""
    for module in pkgutil.walk_packages(tpuwatch.__path__, "tpuwatch."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("difflib", "encodings.idna", "stringprep", "getpass", "importlib.metadata", "shlex"):
        importlib.import_module(name)


def _run(words: list[str]) -> Ended:
    from tpuwatch.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as error:
            code = int(error.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


if __name__ == "__main__":
    wanted: list[list[str]] = json.load(sys.stdin)
    _import_all()
    user = int(sys.argv[1])
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    print(json.dumps([_run(words) for words in wanted]))
