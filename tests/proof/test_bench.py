"""The benchmarks in small: what they hold tpuwatch to without timing, and that they measure what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from tests.proof.bench import generate
from tests.proof.bench.figures import Figure, row, summary
from tests.proof.bench.pipeline import Pipeline
from tpuwatch.launches.tracker import MARKS
from tpuwatch.logs.rules.catalogue import for_outputs, load_catalogue
from tpuwatch.model.causes import Cause

if TYPE_CHECKING:
    from pathlib import Path


def figures_of(name: str) -> dict[str, float]:
    """What a benchmark measures in small, by the figures' names."""
    command = [sys.executable, "-m", "tests.proof.bench", "--smoke", "--json", name]
    done = subprocess.run(command, check=True, capture_output=True, timeout=120)
    return {figure["name"]: figure["value"] for figure in json.loads(done.stdout)}


def test_the_pipeline_finds_each_failure_and_nothing_else(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    pieces = islice(generate.healthy(event_every=10), 112)  # head, banner, a hundred compilations, ten failures
    (logs / generate.NAME).write_text("".join(pieces))
    pipeline = Pipeline(logs, tmp_path / "state", for_outputs(load_catalogue(), MARKS))
    try:
        caught = pipeline.catch_up()
        counts = pipeline.store.counts()
    finally:
        pipeline.close()
    assert caught.size == (logs / generate.NAME).stat().st_size
    assert counts == {Cause.PREMAPPED_EXHAUSTED: 10}


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("a", 60.0, "x", at_least=60), "yes"),
        (Figure("a", 59.0, "x", at_least=60), "NO"),
        (Figure("a", 2.0, "%", at_most=2), "yes"),
        (Figure("a", 2.1, "%", at_most=2), "NO"),
        (Figure("a", 2.1, "%"), "%"),
    ],
)
def test_a_figure_is_held_against_its_target(figure: Figure, verdict: str) -> None:
    assert row(figure).split()[-1] == verdict
    counted = f"{int(verdict == 'yes')} of {int(verdict != '%')} targets reached."
    assert summary([figure]) == counted


def test_a_fleet_is_polled_with_as_many_calls_as_it_has_pages() -> None:
    figures = figures_of("fleet")
    assert figures["fleet: nodes"] >= 600
    assert figures["fleet: pages of the list"] == 2
    assert figures["fleet: API calls per poll to pages"] == 1
    assert figures["fleet: a poll cycle"] > 0


def test_restarts_are_timed_and_idle_watching_asks_for_nothing() -> None:
    figures = figures_of("restarts")
    assert figures["restart: evidence complete to the stop call, median"] > 0
    assert figures["restart: added to the cloud's stop and start, median"] > 0
    assert figures["restart: nodes that are watched and well"] == 600
    assert figures["restart: requests to Cloud Storage meanwhile"] == 0
