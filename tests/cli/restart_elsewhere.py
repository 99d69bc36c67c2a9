"""`tpuwatch restart` as a process for which time runs faster: `python -m` this module, SPEED, EPOCH, words."""

from __future__ import annotations

import sys
import time

from tpuwatch.waker import Waker


class FastClock:
    """The wall clock runs SPEED times as fast from EPOCH on, for all who are given the same."""

    def __init__(self, speed: float, epoch: float) -> None:
        self.skipped = 0.0
        self._speed = speed
        self._epoch = epoch

    def time(self) -> float:
        return self._epoch + (time.time() - self._epoch) * self._speed + self.skipped

    def monotonic(self) -> float:
        return self.time()


class WallClock(FastClock):
    """The same, but deadlines of calls are real seconds."""

    def monotonic(self) -> float:
        return time.monotonic()


def main() -> int:
    from tpuwatch.cli import restart_nodes
    from tpuwatch.cli.main import main as tpuwatch
    from tpuwatch.restart.cloud import CloudNodeApi

    speed, epoch = float(sys.argv[1]), float(sys.argv[2])
    wait = Waker.wait
    Waker.wait = lambda self, seconds: wait(self, seconds / speed)  # type: ignore[method-assign]
    patched = vars(restart_nodes)
    patched["SystemClock"] = lambda: FastClock(speed, epoch)
    patched["CloudNodeApi"] = lambda cloud, **_: CloudNodeApi(cloud, clock=WallClock(speed, epoch))
    return tpuwatch(["restart", *sys.argv[3:]])


if __name__ == "__main__":
    sys.exit(main())
