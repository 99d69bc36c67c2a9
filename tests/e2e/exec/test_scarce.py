"""Where there can be no further process or thread: the command runs all the same, and what is missing is reported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.e2e.daemon_process import SECONDS
from tests.e2e.exec.running import Place

# `tpuwatch exec` on a machine that refuses what `refuse` says. Children of it are refused nothing.
_REFUSED = """
import errno, os, signal, sys, threading
real_fork, real_start, forks, pid = os.fork, threading.Thread.start, 0, os.getpid()
children, refused = set(), []
def fork():
    global forks
    forks += 1
    if os.getpid() == pid and forks in {forks}:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    child = real_fork()
    children.add(child)
    return child
def start(thread):
    gone = {{child for child in children if not os.path.exists(f"/proc/{{child}}")}}
    if len(gone) < {threads_after} or thread in refused:  # Python 3.13 starts none that could not be started once
        refused.append(thread)
        raise RuntimeError("can't start new thread")
    real_start(thread)
os.fork, threading.Thread.start = fork, start
from tpuwatch.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
_ALL = range(1, 100)
_BYSTANDER, _COMMAND, _WATCHER, _BEHIND = 1, 2, 3, 4  # which fork is whose


def _run(
    place: Place, *command: str, forks: object = (), threads_after: int = 0, stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[bytes]:
    code = _REFUSED.format(forks=forks, threads_after=threads_after)
    words = [sys.executable, "-c", code, *place.command(*command)[3:]]
    return subprocess.run(words, env=place.environ, timeout=SECONDS, capture_output=True, stdin=stdin)


@pytest.mark.parametrize("forks", [_ALL, {_COMMAND}], ids=["no process at all", "none for the command"])
def test_a_command_that_can_have_no_process_of_its_own_takes_ours(place: Place, forks: object) -> None:
    code = "echo out; echo err >&2; read children </proc/$$/task/$$/children; echo [$children]; exit 7"
    done = _run(place, "sh", "-c", code, forks=forks)
    assert (done.returncode, done.stdout) == (7, b"out\n[]\n")  # and no child that it does not know of
    assert done.stderr == b"tpuwatch: this run goes unwatched: Resource temporarily unavailable.\nerr\n"


def test_then_too_it_is_reported_that_there_is_no_such_command(place: Place) -> None:
    done = _run(place, "no-such-command", forks=_ALL)
    assert done.returncode == 127
    assert b"there is no such command in PATH" in done.stderr


def test_what_reads_along_makes_room_for_what_copies(place: Place) -> None:
    done = _run(place, "sh", "-c", "echo out; echo err >&2; exit 7", threads_after=2)
    assert (done.returncode, done.stdout) == (7, b"out\n")
    assert (
        b"err\ntpuwatch: the rules did not see all of the output: this user may have too few processes" in done.stderr
    )


def test_where_what_outlives_the_command_cannot_be_served_the_exit_code_is_still_the_commands(place: Place) -> None:
    theirs, ours = os.pipe()  # as long as we have our end open the child goes on
    with os.fdopen(ours, "wb"), os.fdopen(theirs) as stdin:
        code = "exec 3<&0; cat <&3 & echo out; exit 7"
        done = _run(place, "sh", "-c", code, forks={_BEHIND}, stdin=stdin.fileno())
    assert (done.returncode, done.stdout) == (7, b"out\n")
    assert b"what its children still write is not passed on: Resource temporarily unavailable." in done.stderr


@pytest.mark.parametrize("most", [9, 11, 13, 16, 24])
def test_however_few_files_may_be_open_the_command_runs_once_and_ends_as_it_does(place: Place, most: int) -> None:
    words = place.command("sh", "-c", "echo out; exit 7")
    code = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, {most})); "
    code += "os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-c", code, *words]
    done = subprocess.run(words, env=place.environ, timeout=SECONDS, capture_output=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (7, b"out\n")
    assert done.stderr in (b"", b"tpuwatch: this run goes unwatched: Too many open files.\n")
