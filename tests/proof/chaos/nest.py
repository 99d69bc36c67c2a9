"""`python -m tests.proof.chaos.nest CONFIG`: starts `tpuwatch run` again and again, importing it once.

It has imported tpuwatch, and forks for every start. What runs in the fork is the command itself, from its arguments on.
Commands come by standard input, a line each: `start`, answered by a process number, and `wait`, by an exit status.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from tpuwatch.cli.main import main


def serve(config: str) -> None:
    """Obey until standard input ends."""
    for module in ("tpuwatch.cli.run", "tpuwatch.config", "tpuwatch.daemon"):
        import_module(module)
    child = 0
    for line in iter(sys.stdin.readline, ""):
        if line.strip() == "start":
            child = os.fork()
            if child == 0:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(2, 1)
                os._exit(main(["run", "--config", config]))
            answer = child
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(answer, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
