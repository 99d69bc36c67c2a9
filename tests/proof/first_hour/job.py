"""A training program as a user may have it, on a TPU that is not there: it does what each line of its input says.

It has nothing of the checkout, and tells tpuwatch of its steps by `tpuwatch.workload`, as docs/heartbeats.md shows.
libtpu's part of the log is written as the simulator writes it, with the buffer that the environment sets.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tpuwatch.core import SystemClock
from tpuwatch.sim.host.filesystem import on_machine
from tpuwatch.sim.host.glog import GlogFiles
from tpuwatch.sim.host.job import JobOutput
from tpuwatch.sim.host.launch import PADDED
from tpuwatch.sim.host.libtpu_settings import read
from tpuwatch.sim.host.logwriter import SimulatedProcess
from tpuwatch.workload import flush, heartbeat


def main() -> int:
    """Do what standard input says, until that ends or the program has failed."""
    logs = Path(os.environ["TPU_LOG_DIR"])
    with on_machine(logs), (logs.parent / "machine/dev/accel0").open("rb"):
        return _train(logs)


def _train(logs: Path) -> int:
    output = JobOutput(sys.stdout)
    libtpu = SimulatedProcess(GlogFiles(logs, SystemClock()))
    premapped = read(os.environ, logs).premapped_bytes
    libtpu.banner(premapped_bytes=premapped)
    libtpu.init_start(premapped_bytes=premapped)
    libtpu.init_ok(2.4)
    libtpu.compile_ok()
    libtpu.flush()
    step = 0
    for line in sys.stdin:
        word = line.strip()
        if word.isdigit():  # train up to that step
            while step < int(word):
                step += 1
                output.step(step, 2.5 / (1 + step / 40), 0.21)
                heartbeat(step, loss=2.5 / (1 + step / 40))
            flush()
        elif word == "evaluate":
            output.line(f"evaluating at step {step}: eval/loss 1.875, eval/accuracy 0.61")
            output.line(f"Saved checkpoint at step {step} to /tmp/checkpoints/{step}")
        elif word == "run out of HBM":
            libtpu.hbm_oom(PADDED)
            libtpu.close()
            output.hbm_oom(PADDED)
            return 1
        elif word == "hang":
            output.line(f"\ndone: {word}")
            signal.pause()
        output.line(f"\ndone: {word}")
    libtpu.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
