"""Of a log that others may not read, HTTP shows the lines that a rule matched, without secrets, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING

import pytest

from tests.unit.web import samples
from tests.unit.web.samples import SampleView
from tpuwatch.daemon.view import findings_of
from tpuwatch.logs import Scanner, StreamKind, for_programs, load_catalogue
from tpuwatch.logs.parse.parser import LogParser
from tpuwatch.metrics.registry import Metrics
from tpuwatch.web.routes import Routes

if TYPE_CHECKING:
    from tpuwatch.model.events import Event

NOW = samples.NOW
SECRET = "0c6f1e5d0e7b4d5fa0aa6a1f3b2c9d8e7f6a5b4c"  # noqa: S105 # nobody's
PATHS = ("/", "/api/v1/events", "/api/v1/findings", "/api/v1/status", "/api/v1/nodes", "/api/v1/launches")


def shown(view: SampleView) -> dict[str, str]:
    """What HTTP shows, by path."""
    routes = Routes(view, Metrics(loops=(), refusals=()))
    replies = {path: routes.respond(path, accept="") for path in PATHS}
    assert {reply.code for reply in replies.values()} == {200}
    return {path: unescape(reply.body.decode()) for path, reply in replies.items()}


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(for_programs(load_catalogue()))


def events_of(text: str, scanner: Scanner, kind: StreamKind) -> list[Event]:
    parser = LogParser(scanner, kind, now=NOW)
    matches = [*parser.feed(text.encode()), *parser.finish()]
    return [event for match in matches if (event := match.event(samples.LOG, None, NOW)) is not None]


@pytest.mark.slow
@pytest.mark.parametrize("framed", [True, False])
def test_no_line_beside_the_matched_ones_is_shown(scanner: Scanner, *, framed: bool) -> None:
    head = "E1120 13:45:01.000000    4242 a.cc:1] " if framed else ""
    private = "".join(f"PRIVATE{number} is the line that nobody else may read\n" for number in range(6))
    events: list[Event] = []
    for rule in scanner.catalogue.rules:
        for example in rule.examples:
            events += events_of(f"{head}{private}{example}\n{private}", scanner, StreamKind.TEXT)
    assert len(events) > 200
    for few in (events[start : start + 20] for start in range(0, len(events), 20)):
        view = SampleView(stored=few, wrong=findings_of(few, scanner.catalogue))
        for path, text in shown(view).items():
            assert "PRIVATE" not in text, path


def test_a_secret_in_a_matched_line_is_shown_nowhere(scanner: Scanner) -> None:
    line = f"RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 28G of 15G hbm. WANDB_API_KEY={SECRET}"
    found = events_of(f"{line}\n", scanner, StreamKind.TEXT)
    assert [SECRET in event.text for event in found] == [True]  # of its details and its reason, see below
    finding = findings_of(found, scanner.catalogue)[0]
    holder = replace(samples.host().holders[0], command=f"train.py --api-key {SECRET}")
    view = SampleView(
        shown=samples.watching(host=replace(samples.host(), holders=(holder,))),
        stored=[replace(found[0], details={"reason": f"token={SECRET}"})],
        wrong=[replace(finding, summary=f"It says token={SECRET}.", details={"reason": f"token={SECRET}"})],
        started=[samples.launch(environment={"TPU_HUB_TOKEN": SECRET, "TPU_NAME": "train-1"})],
    )
    documents = shown(view)
    for path, text in documents.items():
        assert SECRET not in text, path
    assert "Used 28G of 15G hbm. WANDB_API_KEY=[redacted]" in documents["/"]
    assert '"TPU_HUB_TOKEN": "[redacted]", "TPU_NAME": "train-1"' in documents["/api/v1/launches"]
    assert "train.py --api-key [redacted]" in documents["/api/v1/status"]
