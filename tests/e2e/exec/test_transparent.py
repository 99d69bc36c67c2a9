"""A command under `tpuwatch exec` with pipes and files: it and its reader see no difference."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.e2e.daemon_process import SECONDS
from tests.e2e.exec.running import PYTHON, Place, read_until

ALL_BYTES = bytes(range(256)) * 4096  # a megabyte, with no line that ends as text does


@pytest.mark.parametrize("status", [0, 1, 77, 255])
def test_the_exit_code_is_the_commands(place: Place, status: int) -> None:
    done = place.run("sh", "-c", f"exit {status}")
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT], ids=lambda number: number.name)
def test_it_dies_by_the_signal_that_the_command_died_by(place: Place, number: signal.Signals) -> None:
    done = place.run("sh", "-c", f"kill -{int(number)} $$", cwd=place.root)
    assert done.returncode == -number
    assert place.outcome()["exit_status"] == 128 + number
    assert not list(place.root.glob("core*"))


def test_bytes_pass_through_pipes_as_they_are(place: Place) -> None:
    code = f"import os, sys\nfor n in (1, 2): os.write(n, bytes(range(256)) * {len(ALL_BYTES) // 256 // 8})"
    done = place.run("sh", "-c", 'for i in 1 2 3 4 5 6 7 8; do "$@" || exit; done', "-", *PYTHON, code)
    assert done.returncode == 0
    assert done.stdout == ALL_BYTES
    assert done.stderr == ALL_BYTES


def test_a_file_is_the_commands_own(place: Place) -> None:
    """It is written without anything between: the command can see which file it is, and seek in it."""
    code = "import os; os.lseek(1, 0, 2); os.write(1, b'end'); os.write(2, b'%d' % os.fstat(1).st_ino)"
    path = place.root / "out"
    path.write_bytes(b"before ")
    with open(path, "r+b") as file:
        done = place.run(*PYTHON, code, stdout=file)
    assert (done.returncode, int(done.stderr)) == (0, path.stat().st_ino)
    assert path.read_bytes() == b"before end"


def test_both_streams_into_one_pipe_keep_their_order(place: Place) -> None:
    code = "import os\nfor i in range(2000): os.write(1 + i % 2, b'%d\\n' % i)"
    done = place.run(*PYTHON, code, stderr=subprocess.STDOUT)
    assert done.stdout == b"".join(b"%d\n" % i for i in range(2000))


def test_standard_input_is_the_commands(place: Place) -> None:
    assert place.run("cat", stdin=None, input=ALL_BYTES).stdout == ALL_BYTES


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_stream_that_is_closed_stays_closed(place: Place, number: int) -> None:
    code = f"import os, sys\ntry: os.fstat({number})\nexcept OSError: sys.exit(9)"
    script = f'exec "$@" {number}{"<" if number == 0 else ">"}&-'
    done = subprocess.run(
        ["/bin/sh", "-c", script, "-", *place.command(*PYTHON, code)],
        env=place.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
    )
    assert done.returncode == 9


def test_descriptors_that_are_passed_on_reach_the_command_and_no_others_do(place: Place) -> None:
    own = os.memfd_create("own")
    code = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
    done = place.run(*PYTHON, code, pass_fds=[own])
    os.close(own)
    alone = subprocess.run([*PYTHON, code], capture_output=True, pass_fds=[own := os.memfd_create("own")], check=True)
    os.close(own)
    assert done.stdout == alone.stdout


def test_when_the_reader_has_gone_the_command_learns_it(place: Place) -> None:
    with place.start("sh", "-c", "yes; echo $? >&2") as process:
        read_until(process, b"y\n")
        close_stdout(process)
        assert process.stderr is not None
        assert b"141" in process.stderr.read()  # 128 + SIGPIPE
        assert process.wait(SECONDS) == 0


def test_a_reader_that_has_gone_is_noticed_before_the_next_write(place: Place) -> None:
    """The command's first write after that fails, as it would without us."""
    code = (
        "import os, select, sys, signal\nsignal.signal(signal.SIGPIPE, signal.SIG_IGN)\nos.write(1, b'x')\n"
        "poll = select.poll(); poll.register(1, 0); poll.poll()\n"
        "try: os.write(1, b'y')\nexcept BrokenPipeError: sys.exit(5)"
    )
    with place.start(*PYTHON, code) as process:
        read_until(process, b"x")
        close_stdout(process)
        assert process.wait(SECONDS) == 5


def test_what_outlives_the_command_goes_on_writing_and_holds_up_nobody(place: Place) -> None:
    script = "exec 3<&0; (read line <&3; echo late; echo too >&2) & echo early"
    go, release = os.pipe()
    with place.start("sh", "-c", script, stdin=go) as process:
        os.close(go)
        assert process.wait(SECONDS) == 0  # though its output is held
        os.write(release, b"\n")
        os.close(release)
        assert process.stdout is not None
        assert process.stdout.read() == b"early\nlate\n"  # to its end: no process holds it any more
        assert process.stderr is not None
        assert process.stderr.read() == b"too\n"


# For the commands below: a read of `woken` returns once a signal has come, also one that came before it.
WOKEN = "woken, waker = os.pipe()\nos.set_blocking(waker, False)\nsignal.set_wakeup_fd(waker)\n"


def test_a_signal_to_tpuwatch_reaches_the_command_once(place: Place) -> None:
    code = (
        f"import signal, sys, os\nreceived = []\n{WOKEN}"
        "for n in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):\n"
        "    signal.signal(n, lambda n, f: (received.append(n), os.write(1, b'got %d\\n' % n)))\n"
        "os.write(1, b'ready\\n')\nwhile len(received) < 6: os.read(woken, 1)\n"
        "os.write(1, b'end\\n'); sys.exit(len(received))"
    )
    with place.start(*PYTHON, code) as process:
        read_until(process, b"ready\n")
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
            read_until(process, b"got %d\n" % number)
        assert process.wait(SECONDS) == 6


def test_a_signal_to_the_whole_group_reaches_the_command_once(place: Place) -> None:
    code = (
        f"import signal, os\nreceived = []\n{WOKEN}"
        "signal.signal(signal.SIGTERM, lambda n, f: (received.append(n), os.write(1, b'got\\n')))\n"
        "signal.signal(signal.SIGUSR1, lambda n, f: received.append(n))\n"
        "os.write(1, b'ready\\n')\nwhile signal.SIGUSR1 not in received: os.read(woken, 1)\n"
        "os.write(1, b'%d\\n' % len(received))"
    )
    with place.start(*PYTHON, code) as process:
        read_until(process, b"ready\n")
        os.killpg(process.pid, signal.SIGTERM)
        read_until(process, b"got\n")
        process.send_signal(signal.SIGUSR1)  # what was sent before it is passed on before it, if at all
        assert read_until(process, b"\n") == b"2\n"
        assert process.wait(SECONDS) == 0


def test_signals_that_are_ignored_are_so_for_the_command(place: Place) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    words = ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "-", *place.command(sys.executable, "-c", code)]
    done = subprocess.run(words, env=place.environ, capture_output=True, timeout=SECONDS, check=True)
    assert done.stdout == b"True\n"


def test_the_command_has_no_signal_blocked_or_ignored_that_it_would_not_have(place: Place) -> None:
    look = ("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    without = subprocess.run(look, capture_output=True, timeout=SECONDS, check=True)
    assert masks(place.run(*look).stdout) == masks(without.stdout)


def masks(status: bytes) -> list[int]:
    """Signals as bits, but for the two that the C library keeps for itself and may ignore in what it starts."""
    internal = 1 << 31 | 1 << 32
    return [int(line.split()[1], 16) & ~internal for line in status.splitlines()]


def close_stdout(process: subprocess.Popen[bytes]) -> None:
    """Go away as a reader."""
    assert process.stdout is not None
    process.stdout.close()
