"""Which kind of workload a process is: by its TPUWATCH_KIND, else by its command line.

A server's engine often is a child of the process that was started (`vllm serve`), so those above it are looked at too,
for servers only: what a notebook or its terminal starts is a program of its own.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from tpuwatch.model import KIND_VARIABLE, WorkloadKind, kind_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.host.procfs import ProcFs

_MAX_ABOVE: Final = 4  # processes above it that are looked at
_PYTHON: Final = re.compile(r"python(\d(\.\d+)?)?")
_WITH_VALUE: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})  # options of Python that take the next argument
_SERVERS: Final = re.compile(
    r"vllm\.entrypoints\..+|(sglang|sgl_jax)\.launch_server|jetstream(_pt)?\..+|(.+\.)?maxengine_server(\.py)?"
    r"|text-generation-(launcher|server)|tensorflow_model_server|tritonserver"
)
_SERVE_COMMANDS: Final = frozenset({"vllm", "sglang", "jpt"})  # servers when their first argument is "serve"
_SERVER_TITLES: Final = ("VLLM::", "sglang", "ray::ServeReplica")  # what their processes rename themselves to
_INTERACTIVE: Final = re.compile(r"(ipykernel|colab_kernel)(_launcher)?(\.py)?|ipython3?|IPython|jupyter(-.+)?")


def kind_of_command(argv: Sequence[str]) -> WorkloadKind | None:
    """The kind of workload that a command line shows; None where it shows none."""
    if not argv:
        return None
    if argv[0].startswith(_SERVER_TITLES) and "::" in argv[0]:
        return WorkloadKind.SERVING
    program, arguments = _program(argv)
    if program is None:
        return WorkloadKind.INTERACTIVE  # Python at its prompt
    if _SERVERS.fullmatch(program) or (program in _SERVE_COMMANDS and arguments[:1] == ["serve"]):
        return WorkloadKind.SERVING
    return WorkloadKind.INTERACTIVE if _INTERACTIVE.fullmatch(program) else None


def kind_of_process(processes: ProcFs, pid: int) -> WorkloadKind | None:
    """The kind of workload of a process; None where neither it nor those above it show one."""
    for level in range(_MAX_ABOVE + 1):
        named = kind_named(processes.environment(pid).get(KIND_VARIABLE))
        shown = kind_of_command(processes.arguments(pid))
        if named is not None or (shown is not None and (level == 0 or shown is WorkloadKind.SERVING)):
            return named or shown
        stat = processes.stat(pid)
        if stat is None or stat.parent <= 1:
            return None
        pid = stat.parent
    return None


def _program(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The name of what runs, a module's or a file's, and its arguments. None: Python without a program."""
    name, rest = PurePosixPath(argv[0]).name, list(argv[1:])
    if not _PYTHON.fullmatch(name):
        return name, rest
    while rest:
        word = rest.pop(0)
        if word == "-m" and rest:
            return rest.pop(0), rest
        if word == "-c":
            return word, []
        if word in _WITH_VALUE and rest:
            rest.pop(0)
        elif not word.startswith("-"):
            return PurePosixPath(word).name, rest
        elif word == "-":
            return word, rest  # a program on standard input
    return None, []
