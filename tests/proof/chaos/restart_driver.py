"""`python -m tests.proof.chaos.restart_driver JOB`: drives restarts in processes that may be killed at any moment.

JOB is what `Job` holds, as JSON. Commands come by standard input, a line each: `start NODE` is answered by a process
number, `wait NUMBER SECONDS` by an exit status, minus the signal's number where one ended it. Each driver is a fork of
this process, which has imported all that it needs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tpuwatch.config import schema
from tpuwatch.core.errors import ConflictError, LedgerError
from tpuwatch.model.restart import Target
from tpuwatch.restart.cloud_api import CloudNodeApi
from tpuwatch.restart.driver import Driver
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.restart.workflow.types import PhaseLimits

ENDED, OVERTAKEN, NO_LEDGER, LATE = 0, 3, 4, 5  # exit statuses; LATE is one that had to be killed
PROJECT, ZONE = "lab", "us-east5-a"
CALL_SECONDS: Final = 0.5  # by real time
LOOK_SECONDS: Final = 0.002


@dataclass(frozen=True)
class Job:
    """What all drivers have in common. Simulated time runs `speed` times as fast as real time."""

    wall: float  # the simulated wall time at the real monotonic time `start`
    start: float
    speed: float
    lease_seconds: float
    address: str = ""  # of the simulated cloud
    state: str = ""  # the ledger's directory

    def text(self) -> str:
        """It as JSON."""
        return json.dumps(asdict(self))

    @property
    def limits(self) -> PhaseLimits:
        """By simulated time. After what is long here a person would be called, and none will come."""
        return PhaseLimits(
            wait_seconds=86_400,
            verify_seconds=86_400,
            settle_seconds=10,
            poll_seconds=5,
            retry_seconds=5,
            max_retry_seconds=20,
            call_seconds=4 * CALL_SECONDS * self.speed,
            stale_seconds=10,
        )


class FastClock:
    """The simulated time, the same in every process."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def time(self) -> float:
        """Wall time."""
        return self._job.wall + (time.monotonic() - self._job.start) * self._job.speed

    def monotonic(self) -> float:
        """Monotonic time."""
        return (time.monotonic() - self._job.start) * self._job.speed


class CallClock(FastClock):
    """Simulated wall time, and the real monotonic time, by which calls have their deadlines."""

    def monotonic(self) -> float:
        """Real time."""
        return time.monotonic()


def target(node: str) -> Target:
    """The node of that name."""
    return Target(PROJECT, ZONE, node)


def drive(job: Job, node: str) -> int:
    """Drive its restart to the end, as far as one gets."""
    config = schema.CloudConfig(endpoint=job.address, insecure=True, timeout_seconds=CALL_SECONDS)
    clock = FastClock(job)

    def wait(seconds: float) -> bool:
        time.sleep(seconds / job.speed)
        return False

    driver = Driver(
        SqliteLedger(Path(job.state), clock),
        target(node),
        api=CloudNodeApi(config, clock=CallClock(job)),
        clock=clock,
        wait=wait,
        limits=job.limits,
        lease_seconds=job.lease_seconds,
    )
    try:
        driver.drive()
    except ConflictError:
        return OVERTAKEN
    except LedgerError as error:
        print(error, file=sys.stderr)
        return NO_LEDGER
    return ENDED


def serve(job: Job) -> None:
    """Obey until standard input ends."""
    for line in iter(sys.stdin.readline, ""):
        command, what, *more = line.split()
        print(_started(job, what) if command == "start" else _waited_for(int(what), float(more[0])), flush=True)


def _started(job: Job, node: str) -> int:
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        status = 1
        try:
            status = drive(job, node)
        finally:
            os._exit(status)
    return pid


def _waited_for(pid: int, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(LOOK_SECONDS)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return LATE


if __name__ == "__main__":
    serve(Job(**json.loads(sys.argv[1])))
