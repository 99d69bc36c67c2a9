from __future__ import annotations

import pytest

from tests.unit.web import samples
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Outcome


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({}, ""),
        ({"exit_status": 0}, ""),
        ({"exit_status": 143}, ""),  # SIGTERM: somebody ended it
        ({"exit_status": 1}, "exit status 1"),
        ({"exit_status": 1, "faults": {"hang": 90.0, "hbm_oom_runtime": 60.0}}, "hbm_oom_runtime"),
        ({"outcome": Outcome.SLOW, "cause": Cause.HANG}, "hang"),
        ({"outcome": Outcome.SLOW, "faults": {"slow_init": 26.6}}, ""),  # it came up
        ({"outcome": Outcome.SLOW, "faults": {"slow_init": 26.6, "hang": 90.0}}, "hang"),
        ({"outcome": Outcome.FAILED, "cause": Cause.HANG, "exit_status": 1}, ""),  # its outcome says it
    ],
)
def test_what_went_wrong_after_a_launch_came_up(changes: dict[str, object], failure: str) -> None:
    assert samples.launch(**changes).failed_after_start == failure
