"""`tpuwatch restart` as a process with a fast clock: `python -m` this module, SPEED, EPOCH, the command's words."""

from __future__ import annotations

import sys
import time

from tpuwatch.core.loop import Waker


class FastClock:
    """The wall clock, SPEED times as fast from EPOCH on; the same in all processes with these two."""

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
    import tpuwatch.restart
    from tpuwatch.cli import restart
    from tpuwatch.cli.main import main as tpuwatch_main
    from tpuwatch.restart.cloud_api import CloudNodeApi

    speed, epoch = float(sys.argv[1]), float(sys.argv[2])
    wait = Waker.wait
    Waker.wait = lambda self, seconds: wait(self, seconds / speed)  # type: ignore[method-assign]
    vars(restart)["make_clock"] = lambda: FastClock(speed, epoch)
    vars(tpuwatch.restart)["CloudNodeApi"] = lambda cloud, **_: CloudNodeApi(cloud, clock=WallClock(speed, epoch))
    return tpuwatch_main(["restart", *sys.argv[3:]])


if __name__ == "__main__":
    sys.exit(main())
