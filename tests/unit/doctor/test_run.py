"""Checks are run side by side, each with its deadline, and one that fails takes nothing with it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.standins.doctor_machine import STRANGER, Place
from tpuwatch.doctor.check import Area, Check, CheckResult, CheckStatus, Result, ok, skipped, unknown, wrong
from tpuwatch.doctor.run import is_conclusive, run_checks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.doctor.environment import Environment


def check(look: object, *, name: str = "x", seconds: float = 30.0, essential: bool = False) -> Check:
    return Check(name, f"the {name}", Area.HOST, look, seconds, essential)  # type: ignore[arg-type]


def test_one_that_hangs_is_unknown_and_the_others_go_on(place: Place) -> None:
    release = threading.Event()

    def hang(_: Environment) -> list[Result]:
        release.wait()
        return [ok("too late")]

    try:
        findings = run_checks(
            [check(hang, name="a", seconds=0.05), check(lambda _: [ok("b")], name="b")], place.environment()
        )
    finally:
        release.set()
    assert [(finding.id, finding.status) for finding in findings] == [
        ("a", CheckStatus.UNKNOWN),
        ("b", CheckStatus.OK),
    ]
    assert findings[0].text == "the a: no answer within 0.05 s."


def test_those_that_wait_for_each_other_all_come_through(place: Place) -> None:
    barrier = threading.Barrier(3, timeout=30)  # one after the other would break it

    def wait(_: Environment) -> Iterator[Result]:
        barrier.wait()
        yield ok("together")

    findings = run_checks([check(wait, name=name) for name in "abc"], place.environment())
    assert [finding.text for finding in findings] == ["together"] * 3


def test_one_that_raises_is_unknown(place: Place) -> None:
    def breaks(_: Environment) -> list[Result]:
        raise ZeroDivisionError("by zero")

    def denied(_: Environment) -> list[Result]:
        raise PermissionError(13, "Permission denied", "/secret")

    def absent(environment: Environment) -> Iterator[Result]:
        yield ok("the first half")
        environment.text("/nowhere")

    environment = place.environment(me=STRANGER)
    results = run_checks([check(breaks), check(denied), check(absent)], environment)
    assert [result.status for result in results] == [CheckStatus.UNKNOWN] * 3
    assert "the check itself failed: ZeroDivisionError: by zero" in results[0].text
    assert "no permission to read /secret" in results[1].text
    assert results[1].fix == "`sudo tpuwatch doctor`"
    assert "nowhere cannot be read: No such file" in results[2].text


def test_what_is_asked_once_is_asked_once_and_fails_for_all(place: Place) -> None:
    environment, asked = place.environment(), []

    def ask() -> str:
        asked.append(1)
        return "answer"

    def fail() -> str:
        asked.append(1)
        raise OSError(5, "broken", "disk")

    def both(environment: Environment) -> Iterator[Result]:
        yield ok(environment.once("one", ask))
        yield ok(environment.once("two", fail))

    findings = run_checks([check(both, name=name) for name in "abcd"], environment)
    assert len(asked) == 2
    assert {finding.text for finding in findings} == {f"the {name}: disk cannot be read: broken." for name in "abcd"}


def test_nothing_essential_found_out() -> None:
    checks = (check(None, name="essential", essential=True), check(None, name="other"))
    essential, other = checks

    def conclusive(*results: tuple[Check, Result]) -> bool:
        return is_conclusive(checks, [CheckResult.of(*one) for one in results])

    assert not conclusive((essential, unknown("?")), (other, ok(".")))
    assert conclusive((essential, unknown("?")), (essential, wrong(".", "", "")))
    assert not conclusive((other, unknown("?")))
    assert conclusive((other, unknown("?")), (other, ok(".")))
    assert conclusive((other, skipped(".")))
    assert not conclusive((essential, skipped(".")), (essential, unknown("?")))
