"""What stands in for the command, at moments that no terminal can be brought to meet."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from tests.e2e.daemon_process import SECONDS
from tests.e2e.exec.running import is_stopped, wait_for

# Its command is stopped by a key just after the first SIGCONT was taken, before anything was done about it.
STOPPED_SINCE = """
import os, signal, sys
from tpuwatch.exec import foreground

class GroupSentinel:
    def was_sent_to_group(self, number):
        return True  # the command has it too
    def forget(self, number):
        pass

foreground.block()
command = os.fork()
if not command:
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    while True:
        signal.pause()
take, first = signal.sigwaitinfo, True
def late(signals):
    global first
    info = take(signals)
    if info.si_signo == signal.SIGCONT and first:
        first = False
        os.killpg(0, signal.SIGTSTP)
        os.waitid(os.P_PID, command, os.WSTOPPED | os.WNOWAIT)
    return info
signal.sigwaitinfo = late
print(command, flush=True)
status = foreground.Foreground(
    command, sentinel=GroupSentinel(), resize=lambda: None, flush=lambda seconds: None, others=lambda: None
).wait()
sys.exit(os.WTERMSIG(status))
"""


def test_a_command_that_was_stopped_after_a_shell_had_it_go_on_stays_stopped() -> None:
    words = [sys.executable, "-c", STOPPED_SINCE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, preexec_fn=os.setpgrp) as process:
        try:
            assert process.stdout is not None
            command = int(process.stdout.readline())
            os.killpg(process.pid, signal.SIGCONT)  # as `fg` does
            wait_for(lambda: is_stopped(process.pid), "it to be stopped as its command is")
            assert is_stopped(command)
            os.kill(command, signal.SIGKILL)
            os.kill(process.pid, signal.SIGCONT)
            assert process.wait(SECONDS) == signal.SIGKILL
        finally:
            with contextlib.suppress(ProcessLookupError):  # no process is left: it is as it should be
                os.killpg(process.pid, signal.SIGKILL)
