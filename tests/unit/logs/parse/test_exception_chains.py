"""An exception that is printed more than once is one event; one that is raised again is another."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest

from tests.unit.logs.parse.test_parser import NOW
from tpuwatch.diagnose import RecognisedRecord, fold
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import for_streams, load_catalogue
from tpuwatch.model import Cause

NO_ROOM = "RESOURCE_EXHAUSTED: Attempting to allocate 2.00G. That was not possible. There are 1.50G free.; (0x0x0_HBM0)"
OTHER = NO_ROOM.replace("2.00G", "3.00G")
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n\n"


def traceback(message: str = NO_ROOM, *, line: int = 7, name: str = "jax.errors.JaxRuntimeError") -> str:
    frames = "".join(
        f'  File "/venv/lib/jax/_src/a{number}.py", line 3, in f\n    return g()\n' for number in range(30)
    )
    return f'Traceback (most recent call last):\n  File "train.py", line {line}, in main\n{frames}{name}: {message}\n'


def prefixed(text: str, prefix: str) -> str:
    return "".join(f"{prefix}{line}" for line in text.splitlines(keepends=True))


INNER = traceback(line=4, name="jaxlib.xla_extension.XlaRuntimeError")
CHAIN = INNER + CAUSE + traceback()
# What vLLM's engine prints: logged with a header on each line, then by multiprocessing as the process ends.
LOGGED = prefixed(CHAIN, "ERROR 04-30 17:45:27 [core.py:11] ")
ENGINE = prefixed(LOGGED + "Process EngineCore:\n" + CHAIN, "(EngineCore pid=4711) ")
RANKS = "".join(
    f"[rank{rank}]: {line}" for line in CHAIN.splitlines(keepends=True) for rank in range(3)
)  # line by line in turns


@cache
def scanner(*, streams: bool = True) -> Scanner:
    catalogue = load_catalogue()
    return Scanner(for_streams(catalogue, ()) if streams else catalogue)


def faults(matches: list[Match]) -> list[Match]:
    return [match for match in matches if match.rule.cause is not None]


def parsed(text: str) -> list[Match]:
    parser = LogParser(scanner(), StreamKind.TEXT, now=NOW)
    return faults(parser.feed(text.encode()) + parser.finish())


RAISED = f"""Traceback (most recent call last):
  File "train.py", line 7, in main
    raise RuntimeError("{NO_ROOM}")
RuntimeError: {NO_ROOM}
"""
# As Python 3.13 shows a statement of more lines.
RAISED_LONG = RAISED.replace('RuntimeError("', 'RuntimeError(\n        f"').replace('")\n', '"\n    )\n    ^^^^^\n')
HANDLED = f"""Traceback (most recent call last):
  File "train.py", line 7, in main
    log.error('retried after "{NO_ROOM}"', check())
ValueError: no such file
"""


@pytest.mark.parametrize(
    ("text", "events"),
    [
        pytest.param(RAISED, 1, id="raised"),
        pytest.param(RAISED_LONG, 1, id="statement of several lines"),
        pytest.param(prefixed(RAISED, "(Worker pid=7) "), 1, id="prefixed"),
        pytest.param(prefixed(RAISED, "ERROR 04-30 17:45:27 [core.py:11] "), 1, id="header on each line"),
        pytest.param(HANDLED, 0, id="not raised"),
        pytest.param(f'    print("{NO_ROOM}")\n', 1, id="no traceback"),
    ],
)
def test_source_code_that_a_traceback_shows_is_no_failure(text: str, events: int) -> None:
    assert len(parsed(f"step 1\n{text}step 2\n")) == events


@pytest.mark.parametrize(
    ("text", "events", "places"),
    [
        (CHAIN, 1, 2),
        (CHAIN[300:], 1, 2),
        (CHAIN + MEANWHILE + traceback(line=9, name="RuntimeError"), 1, 3),
        (traceback(), 1, 1),
        ("ERROR:root:Training failed.\n" + traceback(line=7) + traceback(line=20), 1, 2),  # logged and raised again
        (ENGINE, 1, 4),
        (RANKS, 3, 6),
        (prefixed(traceback(), "(f pid=7, ip=10.0.0.1) ") + traceback(line=9), 1, 2),  # the launcher reports it too
        # Attempts that failed again.
        (traceback() + "Retrying.\n" + traceback(), 2, 2),
        (traceback() + traceback(), 2, 2),
        (CHAIN + "Retrying.\n" + CHAIN, 2, 4),
        (f"{NO_ROOM}\nRetrying.\n{NO_ROOM}\n", 2, 2),
        ((traceback(line=7) + traceback(line=20)) * 3, 3, 6),
        (traceback() + MEANWHILE + traceback(OTHER, line=9), 2, 2),  # a smaller batch, from within the handler
        (traceback() + traceback("KeyError", line=9) + MEANWHILE + traceback(line=12), 2, 2),
        (prefixed(traceback(), "[rank0]: ") + prefixed(traceback(line=9), "[rank1]: "), 2, 2),
        (CHAIN + "." * (300 << 10) + "\n" + CAUSE + traceback(), 2, 3),
    ],
)
def test_how_many_failures_a_text_tells_of(text: str, events: int, places: int) -> None:
    matches = parsed(text)
    assert {match.rule.cause for match in matches} == {Cause.HBM_OOM_RUNTIME}
    assert (len({match.key for match in matches}), len(matches)) == (events, places)
    assert sum(not match.again for match in matches) == events
    whole = LogParser(scanner(streams=False), StreamKind.TEXT, now=NOW)
    recognised = whole.feed(text.encode()) + whole.finish()
    findings = fold(RecognisedRecord.from_match(match, "a.log", NOW) for match in recognised)
    assert [finding.count for finding in findings] == [events]


def test_the_later_exception_of_a_chain_may_state_more() -> None:
    first = traceback("ABORTED: Internal error when accessing libtpu multi-process lockfile.")
    other = "Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid 858477."
    matches = parsed(first + MEANWHILE + traceback(other, line=9, name="RuntimeError"))
    assert len({match.key for match in matches}) == 1
    (finding,) = fold(RecognisedRecord.from_match(match, "a.log", NOW) for match in matches)
    assert (finding.cause, finding.count) == (Cause.TPU_IN_USE, 1)
    assert finding.details["holder_pid"] == 858477


@pytest.mark.slow
@pytest.mark.parametrize("text", [CHAIN, ENGINE, RANKS, CHAIN + traceback(line=20)])
def test_a_chain_is_known_after_a_restart_anywhere(text: str) -> None:
    expected = [(match.offset, match.key, match.again) for match in parsed(text)]
    rng = random.Random(3)
    salt = "00" * 8
    reference = LogParser(scanner(), StreamKind.TEXT, now=NOW, state={"salt": salt})
    data = text.encode()
    expected = [(one.offset, one.key, one.again) for one in faults(reference.feed(data) + reference.finish())]
    for _ in range(20):
        parser = LogParser(scanner(), StreamKind.TEXT, now=NOW, state={"salt": salt})
        found, at = [], 0
        while at < len(data):
            step = rng.randint(1, 4000)
            found += parser.feed(data[at : at + step])
            at = min(at + step, len(data))
            state = json.loads(json.dumps(parser.state()))
            parser, at = (
                LogParser(scanner(), StreamKind.TEXT, now=NOW, offset=parser.offset, state=state),
                parser.offset,
            )
            if at + step >= len(data):
                found += parser.feed(data[at:])
                break
        found += parser.finish()
        assert [(one.offset, one.key, one.again) for one in faults(found)] == expected


def test_what_is_known_of_chains_is_bounded_and_forgotten() -> None:
    parser = LogParser(scanner(), StreamKind.TEXT, now=NOW)
    parser.feed("".join(prefixed(CHAIN, f"[rank{rank}]: ") for rank in range(100)).encode())
    state = parser.state()
    assert 1 <= len(state["chains"]) <= 64
    assert len(json.dumps(state)) < 64 << 10
    parser.feed(b"nothing of interest\n" * (20 << 10))
    assert "chains" not in parser.state()
