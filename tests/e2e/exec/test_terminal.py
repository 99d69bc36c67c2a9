"""A command under `tpuwatch exec` at a terminal, and a shell with job control above it."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.daemon_process import SECONDS
from tests.e2e.exec.running import PYTHON, Place, Terminal, is_stopped, wait_for

BASH = shutil.which("bash")
# Prints each signal that it receives, and ends on a line of input.
LISTENER = """
import os, signal, sys
def on_signal(number, frame):
    os.write(1, b"<%s>" % signal.Signals(number).name.encode())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH, signal.SIGCONT):
    signal.signal(number, on_signal)
os.write(1, b"<ready %d>" % os.getpid())
sys.stdin.readline()
os.write(1, b"<end>")
sys.exit(7)
"""
STATES = """
import os, sys
print([os.isatty(n) for n in range(3)], [tuple(os.get_terminal_size(n)) for n in (1, 2) if os.isatty(n)])
"""


def test_what_is_a_terminal_stays_one_and_has_its_size(place: Place) -> None:
    with Terminal(place.command(*PYTHON, STATES), place.environ, size=(17, 61)) as terminal:
        terminal.sees("[True, True, True] [(61, 17), (61, 17)]")
        assert terminal.ends() == 0


def test_what_is_no_terminal_becomes_none(place: Place) -> None:
    done = place.run(*PYTHON, STATES)
    assert done.stdout == b"[False, False, False] []\n"


def test_one_stream_may_be_a_terminal_and_the_other_a_file(place: Place) -> None:
    words = shlex.join(place.command(*PYTHON, STATES + "os.write(2, b'done')"))
    path = place.root / "errors"
    with Terminal(["sh", "-c", f"{words} 2>{path}"], place.environ) as terminal:
        terminal.sees("[True, True, False]")
        assert terminal.ends() == 0
    assert path.read_bytes() == b"done"


def test_output_reaches_the_terminal_as_it_would_without(place: Place) -> None:
    """The real terminal makes \\r\\n of \\n, once."""
    code = "import os\nfor i in range(100): os.write(1 + i % 2, b'\\x1b[1m%d\\n\\t' % i)"
    with Terminal([*PYTHON, code], place.environ) as terminal:
        assert terminal.ends() == 0
        alone = terminal.seen
    with Terminal(place.command(*PYTHON, code), place.environ) as terminal:
        assert terminal.ends() == 0
        assert terminal.seen == alone


def test_keys_reach_the_command_and_ctrl_c_does_so_once(place: Place) -> None:
    with Terminal(place.command(*PYTHON, LISTENER), place.environ) as terminal:
        terminal.sees("<ready ")
        terminal.type("\x03")
        terminal.sees("<SIGINT>")
        terminal.type("\x03")
        terminal.sees("<SIGINT>")
        terminal.type("done\n")
        assert terminal.ends() == 7
        assert b"SIGINT" not in terminal.seen  # two were pressed and two were received
        assert b"<end>" in terminal.seen


def test_ctrl_c_ends_both(place: Place) -> None:
    with Terminal(place.command("sleep", "100"), place.environ) as terminal:
        wait_for(lambda: _is_running("sleep", terminal.process.pid), "the command to run")
        terminal.type("\x03")
        assert terminal.ends() == -signal.SIGINT


def test_a_new_size_is_there_when_the_command_is_notified_of_it(place: Place) -> None:
    code = (
        "import os, signal, sys\n"
        "def on_signal(*_):\n"
        "    ours, real = (os.get_terminal_size(n) for n in (1, 0))\n"
        "    if ours == real: os.write(1, b'<%d>' % ours.lines)\n"
        "signal.signal(signal.SIGWINCH, on_signal)\nos.write(1, b'<ready>')\nsys.stdin.readline()"
    )
    with Terminal(place.command(*PYTHON, code), place.environ) as terminal:
        terminal.sees("<ready>")
        terminal.resize(33, 99)
        terminal.sees("<33>")
        terminal.type("\n")
        assert terminal.ends() == 0


def test_a_terminal_that_hangs_up_ends_the_command(place: Place) -> None:
    with Terminal(place.command("sleep", "1000"), place.environ) as terminal:
        wait_for(lambda: _is_running("sleep", terminal.process.pid), "the command to run")
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, terminal._ours)
        os.close(null)
        assert terminal.process.wait(SECONDS) == -signal.SIGHUP


def test_what_outlives_the_command_still_writes_to_the_terminal(place: Place) -> None:
    script = f"{sys.executable} -S -c {shlex.quote(_LATE)} {place.root}/go & echo early"
    words = shlex.join(place.command("sh", "-c", script))
    os.mkfifo(place.root / "go")
    with Terminal(["sh", "-c", f"{words}; echo after $?; exec cat"], place.environ) as terminal:
        terminal.sees("early")
        terminal.sees("after 0")
        (place.root / "go").write_text("\n")
        terminal.sees("late")
        terminal.type("\x04")
        assert terminal.ends() == 0


_LATE = (
    "import os, signal, sys\n"
    "signal.signal(signal.SIGHUP, signal.SIG_IGN); open(sys.argv[1]).read(); os.write(1, b'late')"
)


@pytest.mark.skipif(BASH is None, reason="bash is not installed: job control is not tried under a real shell")
def test_a_shell_stops_it_and_has_it_go_on(place: Place) -> None:
    program = place.root / "listener.py"
    program.write_text(LISTENER)
    shell = [str(BASH), "--noprofile", "--norc", "-i"]
    with Terminal(shell, {**place.environ, "PS1": "prompt> ", "HISTFILE": "/dev/null"}) as terminal:
        terminal.sees("prompt> ")
        terminal.type(shlex.join(place.command(sys.executable, "-S", str(program))) + "\n")
        terminal.sees("<ready ")
        terminal.type("\x1a")
        terminal.sees("Stopped")
        terminal.sees("prompt> ")
        terminal.type("fg\n")
        terminal.sees("<SIGCONT>")
        terminal.type("\x1a")
        terminal.sees("Stopped")
        terminal.sees("prompt> ")
        terminal.type("bg\n")
        terminal.sees("<SIGCONT>")
        job = int(_children(terminal.process.pid)[0])
        wait_for(lambda: is_stopped(job), "it to be stopped: it reads from the terminal in the background")
        terminal.type("fg\n")
        terminal.sees("<SIGCONT>")
        terminal.type("line\n")
        terminal.sees("<end>")
        terminal.sees("prompt> ")
        terminal.type("echo status $?\n")
        terminal.sees("status 7")
        terminal.type("exit\n")
        assert terminal.ends() == 0


def test_a_command_that_ignores_ctrl_z_is_not_stopped(place: Place) -> None:
    code = "import signal\nsignal.signal(signal.SIGTSTP, signal.SIG_IGN)\n" + LISTENER
    with Terminal(place.command(*PYTHON, code), place.environ) as terminal:
        terminal.sees("<ready ")
        terminal.type("\x1a\x03")
        terminal.sees("<SIGINT>")
        assert not is_stopped(terminal.process.pid)
        terminal.type("\n")
        assert terminal.ends() == 7


def test_a_stopped_command_goes_on_when_it_is_continued(place: Place) -> None:
    """Outside of a terminal no shell continues tpuwatch: so it does not stop, and the command's output flows again."""
    code = (
        "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})\n"
        "os.write(1, b'%d\\n' % os.getpid())\nsignal.sigwait({signal.SIGCONT})"
    )
    with place.start(*PYTHON, code) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: is_stopped(pid), "the command to be stopped")
        process.send_signal(signal.SIGCONT)  # to tpuwatch: it passes it on
        assert process.wait(SECONDS) == 0


def _is_running(name: str, parent: int) -> bool:
    with contextlib.suppress(OSError):  # one of them has just ended
        return any(Path(f"/proc/{child}/comm").read_text().strip() == name for child in _children(parent))
    return False


def _children(parent: int) -> list[str]:
    return Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
