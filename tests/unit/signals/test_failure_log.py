"""What is logged about signals that fail."""

from __future__ import annotations

import logging

import pytest

from tpuwatch.model.answers import Answer, Problem
from tpuwatch.signals.failure_log import FailureLog

WELL = Answer(1, 1.0, None, tried=1.0)


def failed(problem: Problem) -> Answer[int]:
    return Answer(None, None, problem, "What happened,\x1b[2J and what to do.", 1.0)


@pytest.fixture
def troubles(caplog: pytest.LogCaptureFixture) -> FailureLog:
    caplog.set_level(logging.INFO)
    return FailureLog()


def test_a_problem_that_lasts_is_logged_once(troubles: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        troubles.record("cloud", failed(Problem.SCOPE))
    assert caplog.messages == ["The signal cloud does not answer (scope): What happened, [2J and what to do."]
    for _ in range(50):
        troubles.record("cloud", WELL)
    assert caplog.messages[1:] == ["The signal cloud answers again."]


def test_another_problem_is_logged_too(troubles: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    for problem in (Problem.TIMEOUT, Problem.TIMEOUT, Problem.DENIED, Problem.DENIED):
        troubles.record("cloud", failed(problem))
    timeout, denied = caplog.messages
    assert "(timeout)" in timeout
    assert "(denied)" in denied


def test_what_passes_at_once_is_not_logged(troubles: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        troubles.record("cloud", failed(Problem.TIMEOUT))
        troubles.record("cloud", WELL)
        troubles.record("runtime", failed(Problem.SERVER))
        troubles.record("runtime", failed(Problem.TIMEOUT))
    assert caplog.messages == []


@pytest.mark.parametrize("problem", [Problem.OFF, Problem.ABSENT])
def test_an_absent_server_is_no_failure(
    troubles: FailureLog, caplog: pytest.LogCaptureFixture, problem: Problem
) -> None:
    for _ in range(3):
        troubles.record("metadata", failed(problem))
    assert caplog.messages == []
