"""What the log tells of witnesses that fail."""

from __future__ import annotations

import logging

import pytest

from tpuwatch.daemon.troubles import Troubles
from tpuwatch.health.evidence import Answer, Problem

WELL = Answer(1, 1.0, None, tried=1.0)


def failed(problem: Problem) -> Answer[int]:
    return Answer(None, None, problem, "What happened,\x1b[2J and what to do.", 1.0)


@pytest.fixture
def troubles(caplog: pytest.LogCaptureFixture) -> Troubles:
    caplog.set_level(logging.INFO)
    return Troubles()


def test_a_problem_that_lasts_is_told_once(troubles: Troubles, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        troubles.heard("cloud", failed(Problem.SCOPE))
    assert caplog.messages == ["The witness cloud does not answer (scope): What happened, [2J and what to do."]
    for _ in range(50):
        troubles.heard("cloud", WELL)
    assert caplog.messages[1:] == ["The witness cloud answers again."]


def test_another_problem_is_told_too(troubles: Troubles, caplog: pytest.LogCaptureFixture) -> None:
    for problem in (Problem.TIMEOUT, Problem.TIMEOUT, Problem.DENIED, Problem.DENIED):
        troubles.heard("cloud", failed(problem))
    timeout, denied = caplog.messages
    assert "(timeout)" in timeout
    assert "(denied)" in denied


def test_what_passes_at_once_is_not_told(troubles: Troubles, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        troubles.heard("cloud", failed(Problem.TIMEOUT))
        troubles.heard("cloud", WELL)
        troubles.heard("runtime", failed(Problem.SERVER))
        troubles.heard("runtime", failed(Problem.TIMEOUT))
    assert caplog.messages == []


@pytest.mark.parametrize("problem", [Problem.OFF, Problem.ABSENT])
def test_that_nobody_is_there_to_ask_is_no_trouble(
    troubles: Troubles, caplog: pytest.LogCaptureFixture, problem: Problem
) -> None:
    for _ in range(3):
        troubles.heard("metadata", failed(problem))
    assert caplog.messages == []
