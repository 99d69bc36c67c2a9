"""The parser: matches do not depend on how the bytes arrive, and nothing is lost or doubled by a restart."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.paths import SHARED
from tpuwatch.logs.parse import records
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.records import MAX_RECORD
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import for_programs, for_streams, load_catalogue
from tpuwatch.model import Cause

NOW = 1_790_000_000.0
RULES = """
[[rule]]
id = "premap"
cause = "premapped_exhausted"
summary = "x"
match = ['premapped region is full']
capture = ['wanted (?P<requested_bytes>{SIZE})']
unless = ['only a drill']
remedy = [{ do = "x", source = "https://example.com/" }]

[[rule]]
id = "two-lines"
cause = "vmem_oom"
summary = "x"
match = ['kernel wants too much[^\\n]*\\n\\s*scoped vmem (?:limit|size)']
severity = "WEF"
remedy = [{ do = "x", source = "https://example.com/" }]

[[rule]]
id = "report"
cause = "hbm_oom_compile"
summary = "x"
match = ['does not fit: report follows']
capture = ['arguments +(?P<arguments_bytes>{SIZE})', 'temporaries +(?P<temporaries_bytes>{SIZE})']
report = true
remedy = [{ do = "x", source = "https://example.com/" }]

[[rule]]
id = "maybe"
cause = "hbm_oom_compile"
summary = "x"
match = ['cannot shrink the program']
remedy = [{ do = "x", source = "https://example.com/" }]
[rule.tentative]
confirm = "compilation is over"
clear = "code was generated"

[[rule]]
id = "first-step"
mark = "compiled"
summary = "x"
match = ['step [0-9]+ was taken']
enough = 1

[[rule]]
id = "two-batches"
mark = "progress"
summary = "x"
match = ['batch [0-9]+ was taken']
enough = 2

[[rule]]
id = "first-chip"
mark = "tpu_named"
summary = "x"
match = ['chip [0-9]+ is there']
enough = 1
"""


@pytest.fixture(scope="module")
def scanner(tmp_path_factory: pytest.TempPathFactory) -> Scanner:
    directory = tmp_path_factory.mktemp("rules")
    (directory / "own.toml").write_text(RULES)
    catalogue = load_catalogue([directory])
    assert not catalogue.refused
    own = {"premap", "two-lines", "report", "maybe", "first-step", "two-batches", "first-chip"}
    return Scanner(type(catalogue)(tuple(rule for rule in catalogue.rules if rule.id in own)))


def record(text: str, *, severity: str = "E", at: float = 1.0, thread: int = 7, source: str = "a.cc:1") -> str:
    return f"{severity}1120 13:45:{at:09.6f} {thread:7d} {source}] {text}\n"


def parse(scanner: Scanner, data: str | bytes, kind: StreamKind = StreamKind.LIBTPU) -> list[Match]:
    parser = LogParser(scanner, kind, now=NOW, count_lines=True)
    raw = data.encode() if isinstance(data, str) else data
    return [*parser.feed(raw), *parser.finish()]


def ids(matches: list[Match]) -> list[str]:
    return [match.rule.id for match in matches]


def test_a_record_is_recognised_with_its_header_and_numbers(scanner: Scanner) -> None:
    head = "Log file created at: 2026/11/20 13:44:14\nRunning on machine: vm\n"
    (match,) = parse(
        scanner, head + record("Ok.") + record("premapped region is full, wanted 512.0M", at=59.25, thread=42)
    )
    assert match.details == {"requested_bytes": 512 << 20}
    assert (match.severity, match.thread, match.line) == ("E", 42, 4)
    assert match.text == "premapped region is full, wanted 512.0M"
    assert match.offset == len(head + record("Ok."))


@pytest.mark.parametrize("kind", StreamKind)
def test_a_match_holds_the_lines_that_matched_and_no_others(scanner: Scanner, kind: StreamKind) -> None:
    lines = "kernel wants too much, in layer 7\n  scoped vmem limit is 16M"
    around = f"WANDB_API_KEY=before\n{lines}\nWANDB_API_KEY=after\n"
    (framed,) = parse(scanner, record(around), kind)
    assert framed.text == lines
    if kind is StreamKind.TEXT:
        around = around.replace("too much", "too much, premapped region is full")
        texts = {match.rule.id: match.text for match in parse(scanner, around, kind)}
        assert texts["two-lines"] == lines.replace("too much", "too much, premapped region is full")
        assert texts["premap"] == "kernel wants too much, premapped region is full, in layer 7"


def test_a_long_line_is_cut(scanner: Scanner) -> None:
    (match,) = parse(scanner, record("premapped region is full " + "x" * 5000))
    assert len(match.text) == 2000


def test_an_exception_clause_holds_for_the_whole_record(scanner: Scanner) -> None:
    assert parse(scanner, record("premapped region is full") + record("Ok.")) != []
    assert parse(scanner, record("premapped region is full\nbut this is only a drill") + record("Ok.")) == []


def test_a_record_goes_on_over_lines_without_a_header_blank_ones_too(scanner: Scanner) -> None:
    text = record("something\n\n  more\n\npremapped region is full\n\nwanted 4096") + record("wanted 1")
    (match,) = parse(scanner, text)
    assert match.offset == 0
    assert match.details == {"requested_bytes": 4096}


def test_a_record_counts_once_however_often_it_says_so(scanner: Scanner) -> None:
    assert len(parse(scanner, record("premapped region is full\npremapped region is full"))) == 1


def test_severity_matters_where_a_rule_says_so(scanner: Scanner) -> None:
    text = "kernel wants too much\n  scoped vmem limit"
    assert parse(scanner, record(text, severity="I")) == []
    assert ids(parse(scanner, record(text, severity="W"))) == ["two-lines"]
    assert ids(parse(scanner, text, StreamKind.TEXT)) == ["two-lines"]


def test_a_copy_of_a_record_has_the_same_key_wherever_it_stands(scanner: Scanner) -> None:
    one = record("premapped region is full")
    (first,) = parse(scanner, record("a") + one)
    (second,) = parse(scanner, "Log file created at: 2026/11/20 13:44:14\n" + one)
    (third,) = parse(scanner, "[rank3]: " + one, StreamKind.TEXT)
    (other,) = parse(scanner, record("premapped region is full", at=2.0))
    assert first.key == second.key == third.key != other.key


def test_keys_of_every_kind_of_header_begin_with_the_time(scanner: Scanner) -> None:
    lines = [
        "I1120 13:45:01.000001 7 a.cc:1] premapped region is full\n",
        "2026-11-20 13:45:02.000001: E a/b.cc:1] premapped region is full\n",
        "E1120 13:45:03.000001 7 a.cc:1] premapped region is full\n",
    ]
    keys = [parse(scanner, line, StreamKind.TEXT)[0].key for line in lines]
    assert keys == sorted(keys)
    assert {len(key) for key in keys} == {16}


def test_one_report_over_many_records_is_one_event_with_all_its_numbers(scanner: Scanner) -> None:
    lines = ["it does not fit: report follows", "  arguments   1.00G", "", "  temporaries 2.00G"]
    old = "".join(record(line, at=1 + n / 1000) for n, line in enumerate(lines))
    (match,) = parse(scanner, old + record("  arguments 7.00G", thread=8))
    assert match.details == {"arguments_bytes": 1 << 30, "temporaries_bytes": 2 << 30}


@pytest.mark.parametrize("size", [1, 64, 1 << 20])
def test_a_report_over_many_records_begins_at_its_headline(scanner: Scanner, size: int) -> None:
    lines = ["It needs:", "  arguments   1.00G", "", "  it does not fit: report follows", "  temporaries 2.00G"]
    report = [record(line, at=1 + n / 1000) for n, line in enumerate(lines)]
    other = record("another's", source="b.cc:1")

    def found(kind: StreamKind, text: str) -> list[Match]:
        parser, data = LogParser(scanner, kind, now=NOW), text.encode()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        return [match for piece in pieces for match in parser.feed(piece)] + parser.finish()

    both = found(StreamKind.LIBTPU, other + 2 * "".join(report))
    assert [match.offset for match in both] == [len(other), len(other + "".join(report))]
    assert [match.details for match in both] == 2 * [{"arguments_bytes": 1 << 30, "temporaries_bytes": 2 << 30}]
    (one,) = found(StreamKind.TEXT, other + "".join(report))  # in a job's output others may have written what is above
    assert one.offset == len(other + "".join(report[:3]))
    assert one.details == {"temporaries_bytes": 2 << 30}


def test_consecutive_reports_are_separate_matches(scanner: Scanner) -> None:
    text = "".join(record(f"it does not fit: report follows\n arguments {n}K", at=n) for n in range(1, 6))
    assert [match.details["arguments_bytes"] for match in parse(scanner, text)] == [n * 1024 for n in range(1, 6)]


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        ("compilation is over", ["maybe"]),
        ("code was generated\ncompilation is over", []),
        ("nothing of both", []),
        ("it does not fit: report follows\ncompilation is over", ["report"]),
    ],
)
def test_a_tentative_match_waits_for_its_confirmation(scanner: Scanner, tail: str, found: list[str]) -> None:
    text = record("cannot shrink the program", severity="W") + "".join(record(line, at=3) for line in tail.split("\n"))
    assert ids(parse(scanner, text)) == found


def test_a_rule_of_which_one_match_is_enough_matches_once_per_stream(scanner: Scanner) -> None:
    text = "".join(record(f"step {number} was taken", severity="I") for number in range(5))
    for kind in StreamKind:
        parser = LogParser(scanner, kind, now=NOW)
        assert ids([match for line in text.splitlines(keepends=True) for match in parser.feed(line.encode())]) == [
            "first-step"
        ]


def test_a_file_of_libtpu_has_one_banner_and_a_jobs_output_one_of_each_process() -> None:
    scanner = Scanner(for_streams(load_catalogue(), {"banner"}))
    banners = "".join(record(f"Process id {pid}", severity="I") for pid in (4711, 4712))
    found = {kind: [match.details["pid"] for match in parse(scanner, banners, kind)] for kind in StreamKind}
    assert found == {StreamKind.LIBTPU: [4711], StreamKind.TEXT: [4711, 4712]}


def test_what_a_known_fact_clears_is_no_match() -> None:
    scanner = Scanner(for_streams(load_catalogue(), ()))
    fault, fact = (
        record("No hardware is found. Using default TPU version: x"),
        record("CODE_GENERATION stage duration: 1s"),
    )
    other = record("Largest program allocations in hbm", source="b.cc:2")
    parser = LogParser(scanner, StreamKind.LIBTPU, now=NOW)
    assert ids(parser.feed((fault + fact + fault + other + fault + record("Ok.")).encode())) == [
        *("no-tpu-default-version", "mark-compiled", "hbm-oom-report")
    ]


def test_after_a_fault_each_rule_of_which_some_are_enough_is_searched_again_if_it_states_no_fact(
    scanner: Scanner,
) -> None:
    parser = LogParser(scanner, StreamKind.LIBTPU, now=NOW)
    batches = "".join(record(f"batch {number} was taken") for number in range(3))
    first = record("step 1 was taken") + batches + record("Ok.")
    after = record("premapped region is full, chip 3 is there") + record("step 2 was taken") + batches + record("Ok.")
    assert ids(parser.feed(first.encode())) == ["first-step", "two-batches", "two-batches"]
    assert ids(parser.feed(after.encode())) == ["premap", "first-chip", "two-batches", "two-batches"]


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("I1231 23:59:59.500000 7 a.cc:1] premapped region is full", -0.5),
        ("I0101 00:00:01.000000 7 a.cc:1] premapped region is full", 1.0),
    ],
)
def test_the_year_turns_inside_a_file(scanner: Scanner, line: str, seconds: float) -> None:
    new_year = time.mktime((2027, 1, 1, 0, 0, 0, 0, 0, -1))
    (match,) = parse(scanner, f"Log file created at: 2026/12/31 22:00:00\n{line}\n")
    assert match.time == pytest.approx(new_year + seconds)


def test_lines_before_initialisation_carry_unix_time(scanner: Scanner) -> None:
    (match,) = parse(
        scanner, "E0000 00:00:1671728351.222598      12 a.cc:145] premapped region is full\n", StreamKind.TEXT
    )
    assert match.time == pytest.approx(1671728351.222598)


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,3]<stderr>:",
        "[rank12]: ",
        "(Worker_TP0 pid=6625) ",
        "7: ",
        "worker-0  | ",
        "Nov 20 13:45:01 tpu-vm python3[812]: ",
        "2026-11-20T13:45:01.123456789Z stderr F ",
        "2026-11-20T13:45:01.123456789Z [rank0]: ",
        "\x1b[36m",
    ],
)
def test_launchers_prefixes_are_no_part_of_the_text(scanner: Scanner, prefix: str) -> None:
    text = "".join(
        f"{prefix}{line}\n" for line in ("step", "kernel wants too much of it", "    scoped vmem limit 1M", "x")
    )
    (match,) = parse(scanner, text, StreamKind.TEXT)
    assert match.text.split() == ["kernel", "wants", "too", "much", "of", "it", "scoped", "vmem", "limit", "1M"]
    assert match.line == 2


def test_a_progress_bars_carriage_returns_begin_lines(scanner: Scanner) -> None:
    text = "".join(f"\r {n}%|#   | {n}/100" for n in range(100)) + "\rpremapped region is full\r\nbye\n"
    (match,) = parse(scanner, "first\n" + text, StreamKind.TEXT)
    assert match.text.startswith("premapped region is full")
    assert match.line == 2  # as an editor counts


def test_an_exception_after_a_glog_record_is_not_part_of_it(scanner: Scanner) -> None:
    text = (
        record("compiled", severity="I")
        + "Traceback (most recent call last):\n  File\nkernel wants too much\n scoped vmem size\n"
    )
    assert ids(parse(scanner, text, StreamKind.TEXT)) == ["two-lines"]


def test_unframed_repetitions_are_separate_matches(scanner: Scanner) -> None:
    text = "premapped region is full\n" * 3
    assert len(parse(scanner, text, StreamKind.TEXT)) == 3
    report = "does not fit: report follows\n arguments 1K\n\n" * 2
    matches = parse(scanner, "a\n" + report + "does not fit: report follows\n", StreamKind.TEXT)
    assert [match.details for match in matches] == [{"arguments_bytes": 1024}] * 2 + [{}]


@pytest.mark.parametrize("kind", list(StreamKind))
@pytest.mark.parametrize("filler", ["x", "does not fit: report follows "])
def test_a_line_without_end_takes_bounded_memory_and_is_still_read(
    scanner: Scanner, kind: StreamKind, filler: str
) -> None:
    parser = LogParser(scanner, kind, now=NOW)
    for _ in range(64):
        parser.feed(filler.encode() * (100_000 // len(filler)))
        assert len(parser._buffer.data) <= 3 * MAX_RECORD
    found = parser.feed(b" premapped region is full ") + parser.finish()
    assert "premap" in ids(found)


@pytest.mark.parametrize("kind", list(StreamKind))
@pytest.mark.parametrize("restarted", [False, True])
def test_a_rule_matches_an_overlong_line_once(scanner: Scanner, kind: StreamKind, restarted: bool) -> None:
    parser = LogParser(scanner, kind, now=NOW)
    found = []
    line = b"E0921 14:13:20.000001  4242 a.cc:7] " + (b"premapped region is full " + b"x" * 20_000) * 40
    rest = b"\nE0921 14:13:20.000002  4242 a.cc:7] premapped region is full\n"
    pieces = [line[start : start + 100_000] for start in range(0, len(line), 100_000)]
    for piece in [*pieces, rest]:
        if restarted:
            unread = parser._buffer.data
            state = json.loads(json.dumps(parser.state()))
            parser = LogParser(scanner, kind, now=NOW, offset=parser.offset, state=state)
            found += parser.feed(unread + piece)
        else:
            found += parser.feed(piece)
    found += parser.finish()
    assert ids(found) == ["premap"] * 2
    assert found[0].offset < len(line) < found[1].offset


def test_nul_bytes_and_wrong_encodings_do_no_harm(scanner: Scanner) -> None:
    rubbish = bytes(range(256)) * 50 + b"\n"
    matches = parse(scanner, rubbish + record("premapped region is full, wanted 1K").encode() + rubbish)
    assert [match.details for match in matches] == [{"requested_bytes": 1024}]


def test_settling_returns_complete_records_once(scanner: Scanner) -> None:
    parser = LogParser(scanner, StreamKind.LIBTPU, now=NOW)
    assert parser.feed(record("premapped region is full").encode()) == []
    assert parser.open
    assert ids(parser.settle()) == ["premap"]
    assert not parser.open
    assert parser.feed(b"  wanted 3\n") + parser.feed(record("next").encode()) + parser.finish() == []


def test_a_partial_line_is_not_settled(scanner: Scanner) -> None:
    parser = LogParser(scanner, StreamKind.LIBTPU, now=NOW)
    text = record("premapped region is full, wanted 4096").encode()
    assert parser.feed(text[:-3]) + parser.settle() == []
    assert [match.details for match in parser.feed(text[-3:]) + parser.settle()] == [{"requested_bytes": 4096}]


def test_records_are_counted_in_the_file_of_their_own_severity(scanner: Scanner) -> None:
    text = record("a", severity="I") * 3 + record("b") + "In between\n" + record("c", severity="I")
    for severity, count in (("I", 4), ("E", 1)):
        parser = LogParser(scanner, StreamKind.LIBTPU, now=NOW, severity=severity)
        for at in range(0, len(text), 7):
            parser.feed(text[at : at + 7].encode())
        assert parser.take_records() == {severity: count}
        assert parser.take_records() == {}


LINES = st.sampled_from(
    [
        record("chatter", severity="I"),
        record("premapped region is full, wanted 1M"),
        record("premapped region is full\n\n wanted 2M", at=5),
        record("cannot shrink the program", severity="W"),
        record("compilation is over", severity="I"),
        record("code was generated", severity="I"),
        record("does not fit: report follows"),
        record("  arguments 1G"),
        "kernel wants too much\n",
        "  scoped vmem limit\n",
        "premapped region is full\n",
        "does not fit: report follows\n",
        "Traceback (most recent call last):\n",
        "\n",
        "\u9884\u6620\u5c04 \U0001f980\n",
        "[rank0]: premapped region is full\n",
        "\r 5%|# |\r 6%|# |",
        "x" * 300,
    ]
)


CHATTER, BAR = "I1120 13:45:01.000000       7 a.cc:1] chatter\n", "\r 5%|# |\r 6%|# |"


# The same examples in each run: those of `KNOWN` below would be found now and then.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], derandomize=True)
@example(  # the header above is the same, however much is kept of what was read
    lines=[CHATTER, BAR, CHATTER, BAR, BAR, CHATTER, "[rank0]: premapped region is full\n", CHATTER],
    kind=StreamKind.TEXT,
    sizes=[1],
    restart_at=set(),
    back=(16 << 10, 2048),
)
@given(
    lines=st.lists(LINES, max_size=30),
    kind=st.sampled_from(StreamKind),
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=20),
    restart_at=st.sets(st.integers(0, 40)),
    back=st.sampled_from([(16 << 10, 2048), (300, 200)]),
)
def test_any_cut_and_any_restart_give_the_same_matches(
    scanner: Scanner,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[str],
    kind: StreamKind,
    sizes: list[int],
    restart_at: set[int],
    back: tuple[int, int],
) -> None:
    monkeypatch.setattr(records, "_HEADER_BACK", back[0])
    monkeypatch.setattr(records, "_BACK_BYTES", back[1])
    expected, found = read_both_ways(scanner, kind, lines, sizes, restart_at)
    assert {(match.key, match.offset, match.text) for match in found} == expected
    assert len(found) == len(expected)


def read_both_ways(
    scanner: Scanner, kind: StreamKind, lines: list[str], sizes: list[int], restart_at: set[int]
) -> tuple[set[tuple[bytes, int, str]], list[Match]]:
    """The findings in the whole, and in pieces of these sizes with a new parser after some of them."""
    data = "".join(lines).encode()
    state = {"salt": "0123456789abcdef"}
    whole = LogParser(scanner, kind, now=NOW, state=state)
    expected = {(match.key, match.offset, match.text) for match in whole.feed(data) + whole.finish()}
    parser = LogParser(scanner, kind, now=NOW, state=state)
    found: list[Match] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found += parser.feed(data[at : at + size])
        at += size
        if turn in restart_at:
            kept = json.loads(json.dumps(parser.state()))
            at = parser.offset
            parser = LogParser(scanner, kind, now=NOW, offset=at, state=kept)
        turn += 1
    found += parser.finish()
    return expected, found


FULL = record("premapped region is full, wanted 1M")
KNOWN = [  # what differs: the offset or the number of matches of one failure, or the header that is found above
    (
        [FULL, record("  arguments 1G"), "[rank0]: premapped region is full\n", "does not fit: report follows\n"],
        16 << 10,
    ),
    ([FULL, record("  arguments 1G"), "does not fit: report follows\n", FULL], 16 << 10),
    (
        [
            record("cannot shrink the program", severity="W"),
            "x" * 300,
            CHATTER,
            "[rank0]: premapped region is full\n",
            CHATTER,
            record("code was generated", severity="I"),
        ],
        300,
    ),
]


@pytest.mark.xfail(strict=True, reason="a report that is cut between its records, or whose header is far above")
@pytest.mark.parametrize(("lines", "back"), KNOWN)
def test_cuts_that_are_known_to_give_other_matches(
    scanner: Scanner, monkeypatch: pytest.MonkeyPatch, lines: list[str], back: int
) -> None:
    monkeypatch.setattr(records, "_HEADER_BACK", back)
    monkeypatch.setattr(records, "_BACK_BYTES", 2048 if back > 300 else 200)
    expected, found = read_both_ways(scanner, StreamKind.LIBTPU, lines, [1], set())
    assert sorted((match.key, match.offset, match.text) for match in found) == sorted(expected)


SHARED = SHARED / "libtpu-logs"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the logs of a real libtpu are not on this machine")
def test_real_logs_give_the_same_matches_however_they_are_cut() -> None:
    scanner = Scanner(load_catalogue())
    rng = random.Random(20261120)
    paths = sorted(SHARED.glob("*/*/logs/*.log.*")) + sorted(SHARED.glob("*/*/stderr"))
    assert len(paths) > 200
    for path in paths:
        data = path.read_bytes()
        kind = StreamKind.LIBTPU if path.parent.name == "logs" else StreamKind.TEXT
        whole, cut = (LogParser(scanner, kind, now=NOW, state={"salt": "0123456789abcdef"}) for _ in range(2))
        expected = [(match.key, match.offset) for match in whole.feed(data) + whole.finish()]
        found, at = [], 0
        while at < len(data):
            size = rng.randint(1, 8192)
            found += cut.feed(data[at : at + size])
            at += size
        found += cut.finish()
        assert sorted(expected) == sorted((match.key, match.offset) for match in found), path


ALLOCATION = """  {number}. Size: 128.00M
     Operator: op_type="Mul" op_name="gradients/layer_{number}/mul"
     Shape: f32[64,128,56,56]
     Unpadded size: 98.00M
     Allocation type: HLO temp
     ==========================
"""
REPORT = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 19.46G of 15.48G hbm.\n" + "".join(
    ALLOCATION.format(number=number) for number in range(500)
)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("cut", [True, False])
def test_a_report_of_any_length_is_one_failure_of_each_rank(ranks: int, *, cut: bool) -> None:
    scanner = Scanner(for_programs(load_catalogue()))
    lines = REPORT.splitlines()[: 3500 // ranks]
    text = "".join(f"[rank{rank}]: {line}\n" for line in lines for rank in range(ranks)).encode()
    parser = LogParser(scanner, StreamKind.TEXT, now=NOW)
    found = []
    for start in range(0, len(text), 10_000 if cut else len(text)):
        found += parser.feed(text[start : start + (10_000 if cut else len(text))])
        if cut:  # as after a restart
            rest = text[parser.offset : start + 10_000]
            parser = LogParser(scanner, StreamKind.TEXT, now=NOW, offset=parser.offset, state=parser.state())
            found += parser.feed(rest)
    found += parser.finish()
    assert [match.rule.cause for match in found] == [Cause.HBM_OOM_COMPILE] * ranks


@pytest.mark.parametrize("label", ["XLA label: fusion", "ValueError: "])  # the words of another rule
def test_a_line_that_continues_a_report_is_no_failure_whatever_else_it_says(label: str) -> None:
    lines = ["Ran out of memory in memory space hbm. Used 19.46G of 15.48G hbm.", "Largest program allocations in hbm:"]
    lines += [f"  {label} Allocation type: HLO temp" for _ in range(3)]
    text = "".join(f"E0901 10:00:00.00000{number} 7 a.cc:1] {line}\n" for number, line in enumerate(lines))
    parser = LogParser(Scanner(for_programs(load_catalogue())), StreamKind.TEXT, now=NOW)
    found = {match.rule.cause for match in parser.feed(text.encode()) + parser.finish()}
    assert found - {Cause.UNKNOWN_FAILURE} == {Cause.HBM_OOM_COMPILE}


def test_a_record_of_several_lines_has_the_key_of_its_copy_in_a_jobs_output() -> None:
    scanner = Scanner(for_programs(load_catalogue()))
    record = "E0901 10:00:00.000000 4711 a.cc:1] The step has failed.\nRan out of memory in memory space vmem\n"
    keys = []
    for kind, text in (
        (StreamKind.LIBTPU, record),
        (StreamKind.TEXT, record + "Ran out of memory in memory space vmem\n"),
    ):
        parser = LogParser(scanner, kind, now=NOW)
        keys.append([match.key for match in (*parser.feed(text.encode()), *parser.finish())])
    assert len(keys[0]) == 1
    assert keys[1][0] == keys[0][0]
    assert len(set(keys[1])) == 2  # what is printed besides is another failure
