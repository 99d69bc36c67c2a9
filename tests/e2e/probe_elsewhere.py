"""`tpuwatch probe` on a made-up machine: `python -m tests.e2e.probe_elsewhere ROOT`, and the command's words.

ROOT is a directory with what /proc and /dev would show. On this machine any process may hold a device called
/dev/accel0 meanwhile, another test's among them, and beside one that does nothing is probed.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import tpuwatch.program
from tpuwatch.cli.main import main

if __name__ == "__main__":
    looking_there = functools.partial(tpuwatch.program.run_probe, root=Path(sys.argv[1]))
    vars(tpuwatch.program)["run_probe"] = looking_there
    sys.exit(main(["probe", *sys.argv[2:]]))
