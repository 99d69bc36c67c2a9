"""General rules in a job's output that grows: they give way to what is said exactly, however the output is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.launches.tracker import MARKS
from tpuwatch.logs.parse.job_output import JobOutputParser
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import for_outputs, load_catalogue
from tpuwatch.model.causes import Cause

SCANNER = Scanner(for_outputs(load_catalogue(), MARKS))
GENERAL = "jax.errors.JaxRuntimeError: INTERNAL: it did not work\n"
EXACT = "RuntimeError: Barrier timed out. Barrier_id: sync_7\n"
FULL = "OSError: [Errno 28] No space left on device: '/data/ckpt'\n"
CODE = '    raise JaxRuntimeError("XlaRuntimeError: INTERNAL: it did not work")\n'
STEP = "step 12 took 0.5 s\n"
FAR = STEP * 100
SALT = {"salt": "0123456789abcdef"}


def new_parser(offset: int = 0, state: dict[str, object] | None = None, *, fold: bool = False) -> JobOutputParser:
    known = SALT if state is None else state
    parser = LogParser(SCANNER, StreamKind.TEXT, now=0.0, offset=offset, state=known, fold=fold)
    return JobOutputParser(parser, known)


def causes(matches: list[Match]) -> list[Cause]:
    return [match.rule.cause for match in sorted(matches, key=lambda one: one.offset) if match.rule.cause is not None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GENERAL, [Cause.COMPILER_CRASH]),
        (GENERAL + EXACT, [Cause.BARRIER_TIMEOUT]),
        (EXACT + GENERAL, [Cause.BARRIER_TIMEOUT]),
        (GENERAL + FAR + EXACT, [Cause.COMPILER_CRASH, Cause.BARRIER_TIMEOUT]),
        (EXACT + FAR + GENERAL, [Cause.BARRIER_TIMEOUT, Cause.COMPILER_CRASH]),
        (FULL + EXACT, [Cause.DISK_FULL, Cause.BARRIER_TIMEOUT]),
        (CODE, []),
    ],
)
def test_a_general_rule_gives_way_to_an_exact_one_in_the_same_lines(text: str, expected: list[Cause]) -> None:
    parser = new_parser()
    assert causes(parser.feed(text.encode()) + parser.finish()) == expected


def test_a_general_match_waits_for_what_follows_or_for_quiet() -> None:
    parser = new_parser()
    assert parser.feed((GENERAL + STEP).encode()) == []
    assert parser.open
    assert causes(parser.settle()) == [Cause.COMPILER_CRASH]
    assert not parser.open
    assert parser.feed((GENERAL + STEP).encode()) == []
    assert causes(parser.feed(FAR.encode())) == [Cause.COMPILER_CRASH]


@given(
    lines=st.lists(st.sampled_from([GENERAL, EXACT, FULL, CODE, STEP, STEP * 20, FAR]), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=5),
    restarts=st.sets(st.integers(0, 20)),
)
def test_any_cut_and_any_restart_give_the_same_matches(lines: list[str], sizes: list[int], restarts: set[int]) -> None:
    data = "".join(lines).encode()
    whole = new_parser()
    expected = {(match.key, match.offset) for match in whole.feed(data) + whole.finish()}
    parser, found, at, turn = new_parser(), list[Match](), 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found += parser.feed(data[at : at + size])
        at += size
        if turn in restarts:
            kept = json.loads(json.dumps(parser.state()))
            at = parser.offset
            parser = new_parser(at, kept)
        turn += 1
    found += parser.finish()
    assert {(match.key, match.offset) for match in found} == expected


def test_a_flood_of_general_failures_is_one_event_with_its_repeats() -> None:
    text = "".join(f"JaxRuntimeError: INTERNAL: it failed {number} times\n" for number in range(5000))
    parser = new_parser(fold=True)
    found = parser.feed(text.encode()) + parser.finish()
    assert sum(1 + (0 if match.repeats is None else len(match.repeats)) for match in found) == 5000
    assert len(found) < 200


def test_a_flood_of_general_failures_among_exact_ones_gives_way() -> None:
    text = "".join(f"JaxRuntimeError: INTERNAL: it failed {number} times\n{EXACT}" for number in range(2000))
    parser = new_parser(fold=True)
    assert set(causes(parser.feed(text.encode()) + parser.finish())) == {Cause.BARRIER_TIMEOUT}
