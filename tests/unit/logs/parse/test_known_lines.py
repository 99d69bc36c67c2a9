"""What is remembered of a line's shape changes no match, only the time that is taken."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator

import pytest

from tpuwatch.logs.parse.known_lines import KnownLine, KnownLines
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import for_programs, load_catalogue

NOW = 1.79e9
CATALOGUE = for_programs(load_catalogue())
ENDS = ["", "", "", "\n", "\n  going on\n", "\nTraceback (most recent call last):\n"]
PREFIXES = ["", "", "", "[rank3]: ", "2026-01-01T10:00:00Z stdout F ", "\x1b[31m"]
FAILURE = (
    "RESOURCE_EXHAUSTED: Attempting to allocate {}.21G. That was not possible. There are 0.{}G free.; (0x0x0_HBM0)"
)


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(CATALOGUE, background=lambda _: None)


def parse(scanner: Scanner, data: bytes, kind: StreamKind, cuts: Iterable[int] = ()) -> list[Match]:
    parser = LogParser(scanner, kind, now=NOW, state={"salt": "0123456789abcdef"}, count_lines=True)
    found, at = [], 0
    for cut in (*cuts, len(data)):
        found += parser.feed(data[at:cut])
        at = cut
    return found + parser.finish()


def record(text: str, number: int = 0, severity: str = "E") -> str:
    return f"{severity}0901 10:00:{number % 60:02d}.{number:06d} {4711 + number % 7} a.cc:{number % 90 + 10}] {text}\n"


def compare(scanner: Scanner, texts: Iterable[bytes], rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compare the matches of each text, cut anywhere, with those of a parser that remembers nothing; how many used."""
    used = 0
    get = KnownLines.get

    def count(self: KnownLines, line: bytes) -> KnownLine | None:
        nonlocal used
        known = get(self, line)
        used += known is not None
        return known

    for text in texts:
        for kind in StreamKind:
            cuts = sorted(rng.randint(0, len(text)) for _ in range(rng.choice([0, 0, 3])))
            monkeypatch.setattr(KnownLines, "get", count)
            found = parse(scanner, text, kind, cuts)
            monkeypatch.setattr(KnownLines, "get", lambda *_: None)
            assert found == parse(scanner, text, kind, cuts)
    return used


def storm(rng: random.Random, messages: list[str]) -> bytes:
    """A few messages over and over, with other numbers each time, as records and bare, in any order."""
    pieces = []
    for number in range(rng.randint(20, 200)):
        message = rng.choice(messages)
        if rng.random() < 0.7:
            message = re.sub("[0-9]", lambda _: str(rng.randrange(10)), message)
        message = message.replace("\n", " ") if rng.random() < 0.5 else message
        if rng.random() < 0.9:
            message = rng.choice(PREFIXES) + record(message + rng.choice(ENDS), number, rng.choice("EEEW"))
        pieces.append(message)
    return "".join(pieces).encode("utf-8", "surrogateescape")


def storms(rng: random.Random, number: int, messages: list[str]) -> Iterator[bytes]:
    for _ in range(number):
        yield storm(rng, rng.choices(messages, k=rng.randint(1, 6)))


EXAMPLES = [example for rule in CATALOGUE.rules for example in (*rule.examples, *rule.counterexamples)]


@pytest.mark.slow
def test_in_storms_of_examples(scanner: Scanner, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(20261123)
    messages = [*rng.choices(EXAMPLES, k=3), FAILURE.format(1, 2)]  # one that is remembered for certain
    assert compare(scanner, storms(rng, 5, messages), rng, monkeypatch) > 3


def test_lines_of_a_storm_are_not_searched_one_by_one(scanner: Scanner, monkeypatch: pytest.MonkeyPatch) -> None:
    data = "".join(record(FAILURE.format(number % 9, number % 9), number) for number in range(500)).encode()
    monkeypatch.setattr(LogParser, "_gather", counted := Counted(LogParser._gather))
    found = parse(scanner, data, StreamKind.TEXT)
    assert [match.details["requested_bytes"] for match in found] == [
        int((number % 9 + 0.21) * 2**30) for number in range(500)
    ]
    assert counted.calls < 10


class Counted:
    def __init__(self, function: object) -> None:
        self.function = function
        self.calls = 0

    def __get__(self, parser: object, _: object) -> object:
        def call(*arguments: object) -> object:
            self.calls += 1
            return self.function(parser, *arguments)  # type: ignore[operator]

        return call


def test_a_rule_that_tells_digits_apart_is_asked_each_time(scanner: Scanner) -> None:
    lines = [f"TPU host: terminated with signal {signal}" for signal in (9, 9, 9, 8, 7, 9)]
    data = "".join(record(line, number) for number, line in enumerate(lines)).encode()
    found = parse(scanner, data, StreamKind.LIBTPU)
    assert [match.thread for match in found if match.rule.cause is not None] == [4711, 4712, 4713, 4716]


def test_a_line_that_goes_on_is_not_taken_for_one_that_did_not(scanner: Scanner) -> None:
    alone, more = record(FAILURE.format(1, 1)), "There are 9.99G free.\n"
    (*_, last, _) = parse(scanner, (5 * alone + alone + more + alone).encode(), StreamKind.LIBTPU)
    (expected, _) = parse(scanner, (alone + more + alone).encode(), StreamKind.LIBTPU)
    assert (last.text, last.details) == (expected.text, expected.details)
