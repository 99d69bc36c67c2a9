"""What the daemon makes of a job's output is what diagnose finds in it: the same causes, on every real text.

Left out are the rules that need a whole text, which the daemon never has, and with them the failure that no rule
explains, which is one only where nothing else is known.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.proof.properties.real_texts import needs_texts, real_texts
from tpuwatch.diagnose import RecognisedRecord, fold
from tpuwatch.launches.tracker import MARKS
from tpuwatch.logs.parse.job_output import JobOutputParser
from tpuwatch.logs.parse.match import Match
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import Catalogue, for_outputs, for_programs, load_catalogue
from tpuwatch.model import Cause

CATALOGUE = load_catalogue()


@pytest.fixture(scope="module")
def of_daemon() -> Scanner:
    return Scanner(for_outputs(CATALOGUE, MARKS))


@pytest.fixture(scope="module")
def of_diagnose() -> Scanner:
    rules = for_programs(CATALOGUE).rules
    return Scanner(Catalogue(tuple(rule for rule in rules if not rule.whole_text)))


def causes(matches: Iterable[Match]) -> set[Cause]:
    records = [RecognisedRecord.from_match(match, "job.txt", 0.0) for match in matches]
    return {finding.cause for finding in fold(records, of_job=True)} - {Cause.UNKNOWN_FAILURE}


@needs_texts
def test_the_daemon_and_diagnose_find_the_same(of_daemon: Scanner, of_diagnose: Scanner) -> None:
    for text in real_texts():
        whole = LogParser(of_diagnose, StreamKind.TEXT, now=0.0, count_lines=True, fold=True)
        grown = JobOutputParser(LogParser(of_daemon, StreamKind.TEXT, now=0.0, fold=True), {})
        events = [*grown.feed(text), *grown.finish()]
        found = causes([*whole.feed(text), *whole.finish()])
        assert causes(events) == found, text[:2000].decode(errors="replace")
        told = {match.rule.cause for match in events} - {None, Cause.UNKNOWN_FAILURE}
        assert told >= found, text[:2000].decode(errors="replace")
