"""Datagrams: what is read of good ones, and that nothing else is taken."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.progress.heartbeat import MalformedError, read_heartbeat

GOOD = {"step": 20, "steps": 10, "seconds": 5.0, "input_seconds": 1.0, "numbers": {"loss": 2.5}, "nan": [], "name": "a"}


def test_a_message_is_read() -> None:
    name, steps, progress = read_heartbeat(json.dumps(GOOD).encode())
    assert (name, steps, progress.step, progress.loss) == ("a", 10, 20, 2.5)
    assert (progress.step_seconds, progress.input_seconds, progress.nan, progress.done) == (0.5, 0.1, (), False)


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": True},
        {"step": 1.5},
        {"step": 10**16},
        {"name": "a b"},
        {"name": "x" * 65},
        {"name": 3},
        {"numbers": [1]},
        {"numbers": {str(number): 1.0 for number in range(17)}},
        {"nan": "loss"},
        {"steps": "many"},
        {"seconds": -1.0},
        {"seconds": math.inf},
        {"input_seconds": math.nan},
    ],
    ids=str,
)
def test_a_message_that_says_what_cannot_be_is_malformed(change: dict[str, object]) -> None:
    with pytest.raises(MalformedError):
        read_heartbeat(json.dumps({**GOOD, **change}).encode())


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"[]", b"{}", b"[" * 2000, b"1" * 2049, b'{"step": 1' + b" " * 2048])
def test_other_bytes_are_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        read_heartbeat(raw)


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(
        lambda value: json.dumps({**GOOD, "numbers": {"loss": value}, "nan": [value]}).encode()
    )
)
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    try:
        _, _, progress = read_heartbeat(raw)
    except MalformedError:
        return
    assert progress.loss is None or math.isfinite(progress.loss)
    assert all(name.isidentifier() for name in progress.nan)
