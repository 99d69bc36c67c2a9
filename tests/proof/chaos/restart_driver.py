"""`python -m tests.proof.chaos.restart_driver JOB`: drives restarts in processes that may be killed at any moment.

JOB is what `Job` holds, as JSON. It is a nest (nest.py), and `start NODE` a driver of that node's restart.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.proof.chaos.common import CallClock, FastTime
from tests.proof.chaos.nest import serve
from tpuwatch.config import schema
from tpuwatch.core.errors import ConflictError, LedgerError
from tpuwatch.model.restart import Target
from tpuwatch.restart.cloud_api import CloudNodeApi
from tpuwatch.restart.driver import Driver
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.restart.workflow.types import PhaseLimits

ENDED, OVERTAKEN, NO_LEDGER = 0, 3, 4  # exit statuses
PROJECT, ZONE = "lab", "us-east5-a"
CALL_SECONDS: Final = 0.5  # by real time


@dataclass(frozen=True)
class Job(FastTime):
    """What all drivers have in common, and their clock."""

    lease_seconds: float
    address: str = ""  # of the simulated cloud
    state: str = ""  # the ledger's directory

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


def target(node: str) -> Target:
    """The node of that name."""
    return Target(PROJECT, ZONE, node)


def drive(job: Job, node: str) -> int:
    """Drive its restart to the end, as far as one gets."""
    config = schema.CloudConfig(endpoint=job.address, insecure=True, timeout_seconds=CALL_SECONDS)

    def wait(seconds: float) -> bool:
        time.sleep(seconds / job.speed)
        return False

    driver = Driver(
        SqliteLedger(Path(job.state), job),
        target(node),
        api=CloudNodeApi(config, clock=CallClock(job)),
        clock=job,
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


if __name__ == "__main__":
    the_job = Job(**json.loads(sys.argv[1]))
    serve(lambda node: drive(the_job, node))
