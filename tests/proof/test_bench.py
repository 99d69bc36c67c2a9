"""The benchmarks' own parts: the logs that they make, the peer's program, the form of what they yield. No timing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from tests.proof.bench import faults, generate, mtail, rules
from tests.proof.bench.figures import Figure, row, summary
from tests.proof.bench.pipeline import Pipeline
from tests.proof.bench.processes import cpu_seconds, peak_bytes, resident_bytes
from tests.proof.bench.simulated import number, value
from tpuwatch.logs.parse.frame import LIBTPU_HEADER
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.events import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOGS: list[Callable[[], Iterator[str]]] = [generate.healthy, generate.failures]


@pytest.mark.parametrize("log", LOGS)
def test_a_log_is_the_same_each_time(log: Callable[[], Iterator[str]]) -> None:
    assert list(islice(log(), 50)) == list(islice(log(), 50))


@pytest.mark.parametrize("log", LOGS)
def test_records_have_the_headers_of_libtpu_and_times_that_advance(log: Callable[[], Iterator[str]]) -> None:
    lines = "".join(islice(log(), 50)).encode().splitlines()
    headers = [match for line in lines if (match := LIBTPU_HEADER.match(line))]
    times = [match["date"] + match["clock"] + match["sec"] for match in headers]
    assert len(times) >= 49
    assert times == sorted(times)


def test_a_log_is_as_long_as_it_is_asked_to_be(tmp_path: Path) -> None:
    size = generate.write(tmp_path / "log", 100_000, generate.healthy())
    assert 100_000 <= size < 110_000
    assert (tmp_path / "log").stat().st_size == size


def test_the_pipeline_finds_each_failure_and_nothing_else(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    pieces = islice(generate.healthy(event_every=10), 112)  # head, banner, a hundred compilations, ten failures
    (logs / generate.NAME).write_text("".join(pieces))
    pipeline = Pipeline(logs, tmp_path / "state", load_catalogue())
    try:
        caught = pipeline.catch_up()
        counts = pipeline.store.counts()
    finally:
        pipeline.close()
    assert caught.size == (logs / generate.NAME).stat().st_size
    assert counts == {Cause.PREMAPPED_EXHAUSTED: 10}


def test_rules_are_made_in_any_number_and_still_know_the_failures(tmp_path: Path) -> None:
    made = rules.made_up(300, tmp_path)
    assert len({rule.id for rule in made}) == 300
    failure = generate.failure(1, 1.0).encode()
    assert [rule.cause for rule in made if rule.search(failure)] == [Cause.PREMAPPED_EXHAUSTED]


def test_the_peers_program_has_a_block_for_each_pattern() -> None:
    catalogue = load_catalogue()
    text = mtail.program(catalogue.rules)
    assert text.count("++\n}\n") == sum(len(rule.match) for rule in catalogue.rules)


@pytest.mark.skipif(mtail.PROGRAM is None, reason="mtail is not installed")
def test_the_peer_accepts_its_program_and_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    generate.write(log, 20_000, generate.failures())
    assert mtail.speed(log, rules.few(load_catalogue()), tmp_path) > 0.0
    log.write_text("nothing of interest\n")
    with pytest.raises(RuntimeError, match="counted nothing"):
        mtail.speed(log, rules.few(load_catalogue()), tmp_path)


@pytest.mark.parametrize(
    ("figure", "reached"),
    [
        (Figure("a", 60.0, "x", at_least=60), True),
        (Figure("a", 59.0, "x", at_least=60), False),
        (Figure("a", 2.0, "%", at_most=2), True),
        (Figure("a", 2.1, "%", at_most=2), False),
        (Figure("a", 2.1, "%"), None),
    ],
)
def test_a_figure_knows_whether_its_target_is_reached(figure: Figure, reached: bool | None) -> None:
    assert figure.reached is reached
    assert figure.document()["reached"] is reached
    assert ("NO" in row(figure)) is (reached is False)


def test_the_summary_counts_targets_alone() -> None:
    figures = [Figure("a", 1.0, "x", at_least=1), Figure("b", 2.0, "x", at_most=1), Figure("c", 1.0, "ms")]
    assert summary(figures) == "1 of 2 targets reached."


def test_a_value_of_a_scrape_is_that_of_its_series_alone() -> None:
    scraped = 'a{b="c"} 2\na 1.5\naa 3\n'
    assert (value(scraped, "a"), value(scraped, 'a{b="c"}'), value(scraped, "b")) == (1.5, 2.0, None)
    with pytest.raises(RuntimeError, match="no series b"):
        number(scraped, "b")


def test_the_tail_of_delays_is_not_smoothed() -> None:
    assert faults.p99([3.0, 1.0, 2.0]) == 3.0
    assert faults.p99([float(number) for number in range(1, 201)]) == 198.0


def test_processor_time_and_memory_are_those_of_the_process_that_is_asked_for() -> None:
    before = cpu_seconds(os.getpid())
    start = time.process_time()
    sum(range(1_000_000))
    spent = time.process_time() - start
    assert cpu_seconds(os.getpid()) - before >= spent > 0
    assert 0 < resident_bytes(os.getpid()) <= peak_bytes(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert cpu_seconds(other.pid) < before
        other.communicate(b"\n")


def test_the_command_prints_its_figures_as_json() -> None:
    command = [sys.executable, "-m", "tests.proof.bench", "--smoke", "--json", "startup"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    figures = json.loads(done.stdout)
    assert [figure["unit"] for figure in figures] == ["ms", "ms", "x", "ms", "x"]
    assert all(figure["value"] > 0 for figure in figures)


def test_an_unknown_benchmark_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.bench", "no-such"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "no-such" in done.stderr
    assert "catch-up" in done.stderr


def test_a_fleet_is_polled_with_as_many_calls_as_it_has_pages() -> None:
    command = [sys.executable, "-m", "tests.proof.bench", "--smoke", "--json", "fleet"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=120)
    figures = {figure["name"]: figure["value"] for figure in json.loads(done.stdout)}
    assert figures["fleet: nodes"] >= 600
    assert figures["fleet: pages of the list"] == 2
    assert figures["fleet: API calls per poll to pages"] == 1
    assert figures["fleet: a poll cycle"] > 0
