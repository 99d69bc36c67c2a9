"""Lines that begin no record are taken together where what comes of each is what comes of it alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from tpuwatch.logs.parse.independent_lines import IndependentLines
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.records import AHEAD_LINES
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import for_programs, load_catalogue

BARRIER = "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: step_{}"
METADATA = "Failed to fetch URL on try {} out of 6: Timeout was reached"
CONNECT = "UNAVAILABLE: failed to connect to all addresses; last error: ipv4:10.0.0.7:{}: Connection refused"
NOTHING = "worker {} waits for its loader"


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(for_programs(load_catalogue()), background=lambda _: None)


def parse(scanner: Scanner, lines: Iterable[str], *, fold: bool = True) -> list[Match]:
    parser = LogParser(scanner, StreamKind.TEXT, now=1.79e9, fold=fold)
    return parser.feed("".join(line + "\n" for line in lines).encode()) + parser.finish()


def each(found: Iterable[Match]) -> list[tuple[int, str, str]]:
    """Place, rule and text of each fault, of those that others stand for too."""
    every = [one for match in found for one in (*(match.repeats.matches() if match.repeats else ()), match)]
    return sorted((match.offset, match.rule.id, match.text) for match in every if match.rule.cause is not None)


def counted(found: Iterable[Match]) -> Counter[str]:
    count = Counter[str]()
    for match in found:
        count[match.rule.name] += 1 + len(match.repeats or ())
    return count


def shuffled(*messages: str, number: int = 400) -> list[str]:
    rng = random.Random(5)
    return [rng.choice(messages).format(n % 7) for n in range(number)]


def test_failures_in_any_order_are_taken_together(scanner: Scanner) -> None:
    lines = shuffled(BARRIER, METADATA, NOTHING)
    found, plain = parse(scanner, lines), parse(scanner, lines, fold=False)
    assert each(found) == each(plain)
    assert len(found) < len(plain) // 2


def test_after_an_end_that_nothing_follows_no_line_is_by_itself(scanner: Scanner) -> None:
    failures = [METADATA.format(n % 7) for n in range(400)]
    found = parse(scanner, [*failures, *failures[:20], "step 7 loss 2.5"])
    assert counted(found)["metadata_unreachable"] == 420
    assert len(found) < AHEAD_LINES


def test_a_line_that_takes_the_match_of_another_away_is_not_taken_with_it(scanner: Scanner) -> None:
    lines = shuffled(CONNECT.replace("{}", "8476"), CONNECT.replace("{}", "8476"), "a dump of mysql {}")
    found, plain = parse(scanner, lines), parse(scanner, lines, fold=False)
    assert each(found) == each(plain)
    assert 0 < len(plain) < sum("8476" in line for line in lines)
    assert not any(match.repeats for match in found)


def test_a_sentence_that_goes_on_in_the_next_line_is_not_taken_apart(scanner: Scanner) -> None:
    first, second = "node 1: a host maintenance", "event rebooted worker 3."
    lines = [line for _ in range(200) for line in (first, second, METADATA.format(2))]
    found, plain = parse(scanner, lines), parse(scanner, lines, fold=False)
    assert each(found) == each(plain)
    assert counted(plain) == {"maintenance": 200, "metadata_unreachable": 200}


def test_digits_that_matter_are_part_of_the_shape(scanner: Scanner) -> None:
    lines = [f"TPU host: terminated with signal {9 if n % 2 else 7}" for n in range(400)]
    found, plain = parse(scanner, lines), parse(scanner, lines, fold=False)
    assert each(found) == each(plain)
    assert counted(plain)["host_oom"] == 200
    assert sum(match.rule.name == "host_oom" for match in found) < 100


@pytest.mark.slow
def test_lines_whose_digits_matter_and_never_repeat_are_looked_at_one_by_one(scanner: Scanner) -> None:
    lines = [CONNECT.format(8470 + n % 10).replace("0.0.7", f"0.{n // 250}.{n % 250}") for n in range(600)]
    assert len(parse(scanner, lines)) == len(parse(scanner, lines, fold=False))


def test_under_a_header_no_line_is_taken_with_others(scanner: Scanner) -> None:
    lines = ["E0901 10:00:00.000001 4711 a.cc:10] The job prints:", *(METADATA.format(n % 7) for n in range(200))]
    found, plain = parse(scanner, lines), parse(scanner, lines, fold=False)
    assert each(found) == each(plain)
    assert not any(match.repeats for match in found)


@pytest.mark.slow
def test_how_many_shapes_are_tried_is_bounded(scanner: Scanner, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[object]()
    is_independent = IndependentLines._is_independent
    monkeypatch.setattr(
        IndependentLines,
        "_is_independent",
        lambda self, known: tried.append(known) or is_independent(self, known),
    )
    shapes = [f"{'abcdefgh'[n % 8]}{'ijklmnop'[n // 8]}: {METADATA}" for n in range(64)]
    lines = [shapes[n % 64].format(n % 7) for n in range(3000)]
    assert counted(parse(scanner, lines))["metadata_unreachable"] == 3000
    assert 8 < len(tried) <= 48
