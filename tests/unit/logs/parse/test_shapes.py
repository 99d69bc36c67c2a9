"""What is known of the shape of a line changes no finding, only the time that is taken and what is counted."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tpuwatch.logs.parse.match import Match, Repeats
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.records import AHEAD_LINES
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.parse.shapes import OFTEN, Shapes
from tpuwatch.logs.rules.catalogue import for_programs, load_catalogue

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
    return Scanner(CATALOGUE)


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


def parse(
    scanner: Scanner,
    data: bytes,
    kind: StreamKind = StreamKind.TEXT,
    cuts: Iterable[int] = (),
    *,
    fold: bool = True,
    severity: str = "",
) -> list[Match]:
    """The faults, and the marks after the last one."""
    parser = LogParser(
        scanner, kind, now=NOW, state={"salt": "0123456789abcdef"}, count_lines=True, fold=fold, severity=severity
    )
    found, at = list[Match](), 0
    for cut in (*cuts, len(data)):
        found += parser.feed(data[at:cut])
        at = cut
    found = sorted([*found, *parser.finish()], key=lambda match: match.offset)
    last = max((match.offset for match in found if match.rule.cause is not None), default=0)
    return [match for match in found if match.rule.cause is not None or match.offset > last]


def counted(matches: Iterable[Match]) -> Counter[str]:
    """How often each fault was, counted ones among them."""
    counts = Counter[str]()
    for match in matches:
        if match.rule.cause is not None:
            counts[match.rule.id] += 1 + len(match.repeats or ())
    return counts


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
@pytest.mark.parametrize("texts", [12, pytest.param(60, marks=pytest.mark.long)])
def test_what_is_counted_are_the_faults_that_each_line_is_by_itself(scanner: Scanner, texts: int) -> None:
    rng, total, off = random.Random(11), 0, 0
    for _ in range(texts):
        data = hostile(rng)
        for kind in StreamKind:
            cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.choice([0, 1, 5])))
            folded, plain = parse(scanner, data, kind, cuts), parse(scanner, data, kind, cuts, fold=False)
            specific, other = ({one.rule.id for one in some if not one.rule.general} for some in (folded, plain))
            assert specific == other
            faults = {(match.rule.id, match.offset): match.text for match in plain}
            for match in folded:
                plain_text = faults.get((match.rule.id, match.offset), match.text)  # of the line, or more
                assert match.text.partition("\n")[0] == plain_text.partition("\n")[0]
            each, all_of_them = counted(folded), counted(plain)
            off += sum(abs(each[name] - all_of_them[name]) for name in {*each, *all_of_them})
            total += all_of_them.total()
    assert total > 100 * texts
    assert off < total / 100


@pytest.mark.parametrize("prefix", ["", "(Worker pid=71, ip=10.0.0.1) ", "(head, rank=0, pid=12) "])
@pytest.mark.parametrize("way", ["framed", "printed", "json", "docker", "bare"])
def test_a_flood_is_counted_however_it_is_written(scanner: Scanner, way: str, prefix: str) -> None:
    flood = "".join(prefix + written(HBM.format(3, n % 8), 3 * n, "E", way) for n in range(300)).encode()
    found = parse(scanner, flood)
    assert len(found) < 3 * OFTEN + (AHEAD_LINES if way == "bare" else 0)  # what may go on in lines that follow
    assert counted(found).total() == 300
    assert all(match.details["requested_bytes"] == int(3.21 * 2**30) for match in found)


def steps(number: int) -> str:
    return "".join(f"step {10 * number + step} loss 2.{step}\n" for step in range(9))


@pytest.mark.parametrize("way", ["framed", "printed", "json"])
def test_after_a_flood_among_steps_of_training_its_last_steps_are_known(scanner: Scanner, way: str) -> None:
    flood = "".join(written(HBM.format(3, n % 8), n, "E", way) + steps(n) for n in range(100, 999)).encode()
    found = parse(scanner, flood)
    faults = [match for match in found if match.rule.cause is not None]
    assert len(faults) < 3 * OFTEN
    assert counted(found).total() == 899
    last = max(match.offset for match in faults)
    assert [match.details["step_count"] for match in found if match.offset > last] == [*range(9980, 9989)]


def test_each_failure_of_a_flood_of_several_is_counted(scanner: Scanner) -> None:
    messages = [HBM, PREMAPPED, "Barrier timed out. Id: sync_{}, {} tasks", "nothing {} of interest {}"]
    lines = [record(messages[n % 4].format(n % 9, n % 8), n) for n in range(2000)]
    found = parse(scanner, "".join(lines).encode())
    assert len(found) < 5 * OFTEN
    assert set(counted(found).values()) == {500}


def test_repeats_are_the_matches_of_each_line(scanner: Scanner) -> None:
    flood = "".join(record(HBM.format(n % 9, n % 8), n) for n in range(400)).encode()
    each = parse(scanner, flood, StreamKind.LIBTPU, fold=False)
    folded = parse(scanner, flood, StreamKind.LIBTPU)
    repeats = [match.repeats for match in folded if match.repeats]
    keys = list(itertools.chain.from_iterable(map(Repeats.keys, repeats)))
    assert keys == [match.key for some in repeats for match in some.matches()]
    assert (
        sorted(
            [
                *(replace(match, repeats=None) for match in folded),
                *(match for some in repeats for match in some.matches()),
            ],
            key=lambda match: match.offset,
        )
        == each
    )
    (values, *_) = [some.values_of(some.lines)["requested_bytes"] for some in repeats]
    assert values == [int(0.21 * 2**30), int(8.21 * 2**30)]


def test_a_printed_line_below_a_header_is_read(scanner: Scanner) -> None:
    printed = [written(HBM.format(3, n % 8), n, "E", "printed") for n in range(100)]
    text = "".join([*printed, record("Ok.", 7), *printed[:9]])
    above = [match for match in parse(scanner, text.encode()) if match.offset > sum(map(len, printed))]
    assert [match.repeats for match in above] == [None] * 9


def test_what_may_be_an_exception_of_before_is_read(scanner: Scanner) -> None:
    line = written(HBM.format(3, 3), 0, "E", "printed")
    text = TRACEBACK.format("a") + line + CHAIN + TRACEBACK.format("b") + 100 * line
    found = [match for match in parse(scanner, text.encode()) if match.rule.cause is not None]
    assert (len(found), {len(match.repeats or ()) for match in found}) == (101, {0})


def test_a_flood_is_counted_for_each_author(scanner: Scanner) -> None:
    flood = "".join(f"[rank{n % 2}]: " + record(HBM.format(n % 9, n % 8), n) for n in range(300)).encode()
    found = parse(scanner, flood)
    assert counted(found).total() == 300
    assert any(match.repeats for match in found)


def test_few_lines_are_read(scanner: Scanner) -> None:
    few = "".join(record(HBM.format(n % 9, n % 8), n) for n in range(OFTEN)).encode()
    assert [match.repeats for match in parse(scanner, few, StreamKind.LIBTPU)] == [None] * OFTEN


def test_what_has_thresholds_is_read(scanner: Scanner) -> None:
    for rule in CATALOGUE.rules:
        if not rule.has_thresholds:
            continue
        text = rule.examples[0].replace("\n", " ")
        found = parse(scanner, "".join(record(text, n) for n in range(100)).encode(), StreamKind.LIBTPU)
        assert not any(match.repeats for match in found if match.rule is rule)


def test_a_rule_that_tells_digits_apart_is_asked_in_each_block(scanner: Scanner) -> None:
    lines = [f"TPU host: terminated with signal {signal}" for signal in (9, 9, 9, 8, 7, 9)]
    data = "".join(record(line, number) for number, line in enumerate(lines)).encode()
    found = parse(scanner, data, StreamKind.LIBTPU)
    assert [match.thread for match in found if match.rule.cause is not None] == [4711, 4712, 4713, 4716]


def test_a_line_that_goes_on_is_not_taken_for_one_that_did_not(scanner: Scanner) -> None:
    alone, more = record(HBM.format(1, 1), 1), "There are 9.99G free.\n"
    (*_, last, _) = parse(scanner, (40 * alone + alone + more + alone).encode(), StreamKind.LIBTPU)
    (_, expected, _) = parse(scanner, (alone + alone + more + alone).encode(), StreamKind.LIBTPU)
    assert (last.text, last.details) == (expected.text, expected.details)


def test_shapes_that_were_not_seen_for_long_are_forgotten() -> None:
    shapes = Shapes()
    kept, lost = shapes.of(b"kept 1"), shapes.of(b"lost 1")
    for number in range(10_000):
        shapes.of(b"other " + number.to_bytes(2, "big").translate(bytes.maketrans(b"\n0123456789", b"abcdefghijk")))
        assert shapes.of(b"kept 2") is kept
    assert shapes.of(b"lost 2") is not lost


def test_a_line_that_must_not_be_compared_is_never_remembered() -> None:
    shapes = Shapes()
    assert shapes.of(b"a \x01x and a 0x1") is None
    assert shapes.of(b"x" * 10_000) is None
