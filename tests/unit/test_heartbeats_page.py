"""The examples of docs/heartbeats.md that need no framework do what they say. tests/proof/preflight has the others."""

from __future__ import annotations

import sys

import pytest

from tests.standins.heartbeat_examples import EXAMPLES, FRAMEWORKS, PAGE, heartbeats_of
from tpuwatch.progress import tracker
from tpuwatch.workload import SOCKET

PLAIN = [name for name in EXAMPLES if name not in FRAMEWORKS]


def test_each_framework_has_its_example() -> None:
    assert len(PLAIN) == 2
    assert set(EXAMPLES) == {*FRAMEWORKS, *PLAIN}


@pytest.mark.parametrize("name", PLAIN)
def test_an_example_sends_heartbeats(name: str) -> None:
    said = heartbeats_of(EXAMPLES[name], sys.executable)
    last = said[-1]["step"]
    assert last in (100, 999)
    # Where a second has passed the last step has a message of its own, and what says that the loop is done no numbers.
    assert any(one["step"] == last and "loss" in one["numbers"] for one in said)


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert SOCKET in PAGE
    assert f"{tracker.MAX_OF_USER} of one user, {tracker.MAX_LOOPS} in all" in PAGE
    assert f"for {tracker.STALLED_STEPS:g} times the usual step time" in PAGE
    assert f"below {tracker.INPUT_SHARE_UNTIL:.0%}".replace("%", " %") in PAGE
