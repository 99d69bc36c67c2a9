"""`python -m chaos.nest CONFIG`: starts `tpuwatch run` again and again, without the cost of importing it each time.

It has imported tpuwatch, and forks for every start. What runs in the fork is the command itself, from its arguments on.
Commands come by standard input, a line each: `start`, `signal NUMBER`, `wait`. Each is answered by a line: a process
number, or an exit status.
"""

from __future__ import annotations

import os
import signal
import sys

from tpuwatch.cli.main import main


def serve(config: str) -> None:
    """Obey until standard input ends."""
    child = 0
    for line in iter(sys.stdin.readline, ""):
        command, _, argument = line.strip().partition(" ")
        if command == "start":
            child = os.fork()
            if child == 0:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(2, 1)
                os._exit(main(["run", "--config", config]))
            answer = child
        elif command == "signal":
            os.kill(child, signal.Signals(int(argument)))
            answer = child
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(answer, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
