"""Kills for want of memory, as the kernel counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuwatch.host import oom


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({"a": 1}, {"a": 1}, False, id="none"),
        pytest.param({"a": 1, "b": 0}, {"a": 1, "b": 1}, True, id="one"),
        pytest.param({}, {"a": 5}, False, id="not known before"),
    ],
)
def test_only_a_counter_that_grew_reports_a_kill(before: dict[str, int], after: dict[str, int], expected: bool) -> None:
    assert oom.grew(before, after) is expected


def test_the_machines_counter_is_read() -> None:
    text = Path("/proc/vmstat").read_text()
    assert ("/proc/vmstat" in oom.oom_kills(Path("/"))) is ("\noom_kill " in text)
