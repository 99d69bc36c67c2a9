"""What is taken together stands for the same matches, with the same keys, as each line by itself."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tpuwatch.logs.parse.known_lines import KnownLines
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.records import AHEAD_LINES
from tpuwatch.logs.parse.repeats import LEAST
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import Rule, for_programs, load_catalogue
from tpuwatch.model.events import values_together

NOW = 1.79e9
CATALOGUE = for_programs(load_catalogue())
HBM = "RESOURCE_EXHAUSTED: Attempting to allocate {}.21G. That was not possible. There are 0.{}G free.; (0x0x0_HBM0)"
PREMAPPED = (
    "Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to allocate {}.50G. "
    "That was not possible. There are {}.0M free."
)
CONNECT = "UNAVAILABLE: failed to connect to all addresses; last error: ipv4:10.0.0.{}:847{}: Connection refused"
EXAMPLES = [example for rule in CATALOGUE.rules for example in (*rule.examples, *rule.counterexamples)]
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "{}.py", line 3, in f\n    g()\n'
BETWEEN = [  # the last one begins no record
    "step {} loss 3.{}1",
    '{{"step": {}, "loss": 2.{}}}',
    "I0901 10:00:00.000001 {} train.py:{}] all is well",
    "I0901 10:00:00.000001 {} a.cc:{}0] on a TPU",
    "INFO: saved {} of {}",
    "saved {} of {}",
]
PREFIXES = ["", "", "[rank3]: ", "[rank4]: ", "(Worker pid=71, ip=10.0.0.1) ", "2026-01-01T10:00:00Z stdout F "]


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(CATALOGUE, background=lambda _: None)


def record(text: str, number: int, severity: str = "E") -> str:
    seconds = f"{number // 60 % 60:02d}:{number % 60:02d}.{number * 7919 % 1_000_000:06d}"
    return f"{severity}0901 10:{seconds} {4711 + number % 7} a.cc:{number % 90 + 10}] {text}\n"


def written(text: str, number: int, severity: str, way: str) -> str:
    """The text as a record, and as programs print and log it otherwise."""
    framed = record(text, number, severity)
    if way == "printed":
        return f"jaxlib.xla_extension.XlaRuntimeError: {text}\n"
    if way == "bare":
        return f"{text}\n"
    if way == "json":
        return json.dumps({"event": text, "level": "error", "rank": number % 8}) + "\n"
    if way == "docker":
        log = framed if number % 3 else f"jax.errors.JaxRuntimeError: {text}\n"
        return (
            json.dumps({"log": log, "stream": "stderr", "time": "2026-09-01T10:00:00.1Z"}, separators=(",", ":")) + "\n"
        )
    return framed


def stated_by(matches: list[Match]) -> dict[str, list[object]]:
    """The values of each detail that all of them have."""
    names = [name for name in matches[0].details if all(name in match.details for match in matches)]
    both = {name: values_together([match.details[name] for match in matches]) for name in names}
    return {
        name: 2 * values if len(values) == 1 and not isinstance(values[0], str) else values
        for name, values in both.items()
    }


def parse(
    scanner: Scanner, data: bytes, kind: StreamKind, cuts: Iterable[int], *, fold: bool
) -> tuple[list[Match], object, int]:
    """The matches, each by itself, the state at the end, and for how many others a match stood."""
    parser = LogParser(
        scanner, kind, now=NOW, state={"salt": "0123456789abcdef"}, count_lines=True, severity="E", fold=fold
    )
    found, at, repeats = list[Match](), 0, 0
    for cut in (*cuts, len(data), None):
        matches = parser.finish() if cut is None else parser.feed(data[at:cut])
        at = cut or 0
        for match in matches:
            if match.repeats is not None:
                together = list(match.repeats.matches())
                assert match.repeats.keys() == [one.key for one in together]
                stated = match.repeats.values_of(match.repeats.lines)
                assert stated == stated_by(together)
                found += together
                repeats += len(together)
            found.append(replace(match, repeats=None))
    found.sort(key=lambda match: (match.offset, match.rule.id))
    return found, (parser.state(), parser.take_records()), repeats


def all_but_enough(matches: Iterable[Match]) -> list[Match]:
    """Without the marks of which some are enough: of these some may lack between faults that are taken together."""
    return [match for match in matches if match.rule.cause is not None or not match.rule.enough]


def rules_of(matches: Iterable[Match], offset: int) -> set[Rule]:
    """The rules of the matches from that offset on."""
    return {match.rule for match in matches if match.offset >= offset}


def compare(scanner: Scanner, data: bytes, rng: random.Random) -> int:
    """Compare the two ways over a text that is cut anywhere; how many repeats there were."""
    repeats = 0
    for kind in StreamKind:
        cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.choice([0, 1, 5])))
        folded, state, some = parse(scanner, data, kind, cuts, fold=True)
        plain, plain_state, none = parse(scanner, data, kind, cuts, fold=False)
        assert all_but_enough(folded) == all_but_enough(plain)
        assert state == plain_state
        last = max((match.offset for match in plain if match.rule.cause is not None), default=-1)
        assert rules_of(plain, last + 1) <= rules_of(folded, last)
        assert rules_of(folded, last + 1) <= rules_of(plain, last)
        assert not none
        repeats += some
    return repeats


def hostile(rng: random.Random) -> bytes:
    """Bursts of records that differ in digits, cut by whatever a log may hold."""
    messages = [HBM, PREMAPPED, CONNECT, *rng.choices(EXAMPLES, k=3)]
    pieces, number, prefix = list[str](), rng.randrange(3000), rng.choice(PREFIXES)
    for _ in range(rng.randint(3, 12)):
        message, severity = rng.choice(messages).replace("\n", " "), rng.choice("EEEEW")
        both, among = rng.random() < 0.3, rng.choice([[], [], BETWEEN, rng.choices(BETWEEN, k=1)])
        way = rng.choice(["framed", "framed", "printed", "json", "docker", "bare", "bare"])
        for _ in range(rng.choice([1, 3, 40, 90])):
            number += rng.choice([1, 1, 1, 60])
            text = re.sub("[0-9]", lambda _: str(rng.randrange(10)), message).replace("{}", str(number % 10))
            prefix = rng.choice(PREFIXES) if rng.random() < 0.03 else prefix
            if both and rng.random() < 0.5:
                text = HBM.format(number % 10, number % 7)
            pieces.append(prefix + written(text, number, severity, way))
            if among:
                between = rng.choice(among).format(number, number % 10)
                pieces.append("".join(prefix + between + "\n" for _ in range(rng.choice([0, 1, 9]))))
            elif rng.random() < 0.02:
                pieces[-1] = pieces[-1].replace("0901", rng.choice(["1341", "0000", "0902"]))
        pieces.append(
            rng.choice(
                [
                    "",
                    "  going on\n",
                    "Traceback (most recent call last):\n  File x\nValueError: no\n",
                    rng.choice(EXAMPLES) + "\n",
                    record(rng.choice(EXAMPLES), number),
                    CHAIN + TRACEBACK.format(number % 3),
                    TRACEBACK.format(number % 2),
                    prefix + TRACEBACK.format(number % 2).replace("\n", "\n" + prefix, 2),
                    "a bar\r 10%\r 20%\r\n",
                    "step 7 loss 3.2\n",
                    "\x01 \x1b[31m 0x0X\n",
                ]
            )
        )
    return "".join(pieces).encode("utf-8", "surrogateescape")


@pytest.mark.slow
@pytest.mark.parametrize("texts", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_what_is_taken_together_is_what_each_line_is_by_itself(scanner: Scanner, texts: int) -> None:
    rng = random.Random(11)
    repeats = [compare(scanner, hostile(rng), rng) for _ in range(texts)]
    assert sum(map(bool, repeats)) > texts // 8  # the texts are drawn: enough have repeats
    assert sum(repeats) > 15 * texts  # 42 on average; which examples are drawn changes with the catalogue


@pytest.mark.parametrize("prefix", ["", "(Worker pid=71, ip=10.0.0.1) ", "(head, rank=0, pid=12) "])
@pytest.mark.parametrize("way", ["framed", "printed", "json", "docker", "bare"])
def test_a_storm_is_folded_however_it_is_written(scanner: Scanner, way: str, prefix: str) -> None:
    storm = "".join(prefix + written(HBM.format(3, n % 8), 3 * n, "E", way) for n in range(200)).encode()
    parser = LogParser(scanner, StreamKind.TEXT, now=NOW, fold=True)
    found = [match for match in parser.feed(storm) + parser.finish() if match.rule.cause]
    assert len(found) < 20 + (AHEAD_LINES if way == "bare" else 0)  # what may go on in lines that follow
    assert sum(1 + len(match.repeats or ()) for match in found) == 200
    assert all(match.details["requested_bytes"] == int(3.21 * 2**30) for match in found)


def steps(number: int) -> str:
    return "".join(f"step {10 * number + step} loss 2.{step}\n" for step in range(9))


@pytest.mark.parametrize("way", ["framed", "printed", "json"])
def test_a_storm_among_steps_of_training_is_folded(scanner: Scanner, way: str) -> None:
    storm = "".join(written(HBM.format(3, n % 8), n, "E", way) + steps(n) for n in range(100, 999)).encode()
    parser = LogParser(scanner, StreamKind.TEXT, now=NOW, fold=True)
    found = parser.feed(storm) + parser.finish()
    faults = [match for match in found if match.rule.cause is not None]
    assert len(faults) < 40
    assert sum(1 + len(match.repeats or ()) for match in faults) == 899
    last = max(match.offset for match in faults)
    assert [match.details["step_count"] for match in found if match.offset > last] == [*range(9980, 9989)]


def test_a_storm_of_several_failures_is_folded(scanner: Scanner) -> None:
    messages = [HBM, PREMAPPED, "Barrier timed out. Id: sync_{}, {} tasks", "nothing {} of interest {}"]
    lines = [record(messages[n % 4].format(n % 9, n % 8), n) for n in range(2000)]
    parser = LogParser(scanner, StreamKind.TEXT, now=NOW, fold=True)
    found = parser.feed("".join(lines).encode()) + parser.finish()
    assert len(found) < 100
    assert sum(1 + len(match.repeats or ()) for match in found) == 1500


def test_lines_of_ever_new_shapes_are_not_looked_at_for_long(scanner: Scanner, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[bytes]()
    nothing = KnownLines._nothing
    monkeypatch.setattr(KnownLines, "_nothing", lambda *args: looked.append(args[2]) or nothing(*args))
    rng = random.Random(3)
    new = [f"INFO: {''.join(rng.choices('abcdefghi', k=30))}\n" for _ in range(20_000)]
    storm = [record(HBM.format(n % 9, n % 8), n) for n in range(100)]
    parser = LogParser(scanner, StreamKind.TEXT, now=NOW, fold=True)
    parser.feed("".join([*storm, *new]).encode())
    assert len(looked) < len(new) // 8


def test_what_may_be_an_exception_of_before_is_not_taken_together(scanner: Scanner) -> None:
    line = written(HBM.format(3, 3), 0, "E", "printed")
    text = TRACEBACK.format("a") + line + CHAIN + TRACEBACK.format("b") + 100 * line
    parser = LogParser(scanner, StreamKind.TEXT, now=NOW, fold=True)
    found = [match for match in parser.feed(text.encode()) + parser.finish() if match.rule.cause is not None]
    assert (len(found), {len(match.repeats or ()) for match in found}) == (101, {0})


def test_a_storm_is_one_match_for_each_author(scanner: Scanner) -> None:
    storm = "".join(f"[rank{n % 2}]: " + record(HBM.format(n % 9, n % 8), n) for n in range(200)).encode()
    parser = LogParser(scanner, StreamKind.TEXT, now=NOW, fold=True)
    found = parser.feed(storm) + parser.finish()
    together = [match for match in found if match.repeats]
    assert {match.author for match in together} == {"[rank0]:", "[rank1]:"}
    assert sum(1 + len(match.repeats or ()) for match in found if match.rule.cause) == 200


def test_few_lines_are_matches_of_their_own(scanner: Scanner) -> None:
    few = "".join(record(HBM.format(n % 9, n % 8), n) for n in range(LEAST)).encode()
    parser = LogParser(scanner, StreamKind.LIBTPU, now=NOW, fold=True)
    found = parser.feed(few) + parser.finish()
    assert [match.repeats for match in found] == [None] * LEAST


def test_what_has_thresholds_is_not_taken_together(scanner: Scanner) -> None:
    for rule in CATALOGUE.rules:
        if not rule.has_thresholds:
            continue
        text = rule.examples[0].replace("\n", " ")
        parser = LogParser(scanner, StreamKind.LIBTPU, now=NOW, fold=True)
        found = parser.feed("".join(record(text, n) for n in range(100)).encode()) + parser.finish()
        assert not any(match.repeats for match in found if match.rule is rule)
