"""The literals of each rule are counted in logs of what goes well: each one costs more than a kilobyte of log.

A rule that spends more than its budget fails here with the literal. Match rarer words, or let the pattern hold more of
them: `healthy.txt` is what the choice of a literal knows of such logs, and may lack a line.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.paths import SHARED
from tests.proof.bench import generate
from tests.proof.bench.kinds import KINDS, TRAINING
from tpuwatch.diagnose import stream_kind
from tpuwatch.launches.tracker import MARKS
from tpuwatch.logs.parse.parser import LogParser
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import for_outputs, for_programs, for_streams, load_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable
BUDGET = 50  # hits in a megabyte, of one rule
IN_ALL = 200  # and of all together
# What a line says in which a rule's only words stand.
SPENT_IN_LIBTPUS = {
    "mark-jax": 300,  # the list of a process's libraries: one of them is enough
    "hbm-oom-remat": 150,  # a warning of programs that nearly fill HBM; skipped where the compilation goes on
    "no-tpu-default-version": 300,  # once in a process that compiles without a TPU
}
EACH_LINE = 45_000  # hits in a megabyte: two in each line
SPENT_IN_TRAINING = {"mark-progress": EACH_LINE}
SPENT_IN_VERBOSE = {"heartbeat-lost": EACH_LINE, "heartbeat-said": EACH_LINE}
CATALOGUE = load_catalogue()
CATALOGUES = {
    "daemon": for_streams(CATALOGUE, MARKS),
    "daemon, jobs": for_outputs(CATALOGUE, MARKS),
    "diagnose": for_programs(CATALOGUE),
}
SCANNERS = {name: Scanner(catalogue) for name, catalogue in CATALOGUES.items()}
read_by = pytest.mark.parametrize("reader", CATALOGUES)


def made(pieces: Iterable[str], size: int = 1 << 17) -> bytes:
    text = bytearray()
    for piece in pieces:
        text += piece.encode()
        if len(text) >= size:
            break
    return bytes(text)


def spent(scanner: Scanner, text: bytes) -> tuple[dict[tuple[str, str], float], float]:
    """Count the literals that call a rule, in a megabyte, by rule and literal; and all together.

    Left out are those of facts that are known after the first 16 KiB: the parser looks for them no more.
    """
    parser = LogParser(scanner, stream_kind("", text), now=0.0)
    known = scanner.facts.intersection(match.rule for match in parser.feed(text[: 16 << 10])) | scanner.chain_marks
    calls, hits = Counter[tuple[str, str]](), 0
    for position, number in scanner.find(text, known):
        literal = text[position : position + scanner.lengths[number]].decode()
        rules = [rule for rule in scanner.rules[number] if rule not in known]
        calls.update((rule.id, literal) for rule in rules)
        hits += bool(rules)
    megabytes = len(text) / 1e6
    return {place: number / megabytes for place, number in calls.items()}, hits / megabytes


def overspent(scanner: Scanner, text: bytes, allowed: dict[str, int]) -> dict[tuple[str, str], float]:
    found, _ = spent(scanner, text)
    return {(rule, literal): hits for (rule, literal), hits in found.items() if hits > allowed.get(rule, BUDGET)}


@read_by
@pytest.mark.parametrize("pieces", [generate.healthy, generate.processes])
def test_no_rule_is_called_often_in_a_healthy_log_of_libtpu(reader: str, pieces: object) -> None:
    text = made(pieces())  # type: ignore[operator]
    assert not overspent(SCANNERS[reader], text, SPENT_IN_LIBTPUS)
    found, hits = spent(SCANNERS[reader], text)
    assert hits - sum(number for (rule, _), number in found.items() if rule in SPENT_IN_LIBTPUS) <= IN_ALL


@read_by
def test_no_rule_is_called_often_in_real_logs_of_libtpu_that_went_well(reader: str) -> None:
    runs = sorted((SHARED / "libtpu-logs" / "aot-oom").glob("*/logs"))
    if not runs:
        pytest.skip("no real logs of libtpu beside the repository: the made-up ones have the same words")
    files = [path for run in runs if not (run.parent / "error.txt").exists() for path in sorted(run.iterdir())]
    text = b"".join(path.read_bytes() for path in files if ".log." in path.name)
    assert len(text) > 300_000
    assert not overspent(SCANNERS[reader], text, SPENT_IN_LIBTPUS)
    found, hits = spent(SCANNERS[reader], text)
    assert hits - sum(number for (rule, _), number in found.items() if rule in SPENT_IN_LIBTPUS) <= IN_ALL


@read_by
@pytest.mark.parametrize("kind", TRAINING)
def test_only_rules_for_numbers_are_called_often_in_a_log_of_training(reader: str, kind: str) -> None:
    rng = random.Random(1)
    text = made(KINDS[kind].piece(number, rng) for number in count(1))
    verbose = SPENT_IN_VERBOSE if kind == "verbose modules" else {}
    assert not overspent(SCANNERS[reader], text, {**SPENT_IN_TRAINING, **verbose})
    assert spent(SCANNERS[reader], text)[1] <= EACH_LINE


def test_a_rule_that_spends_too_much_is_named_with_its_literal(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("rules")
    (directory / "own.toml").write_text(
        """
[[rule]]
id = "too-wide"
cause = "vmem_oom"
summary = "It is too large."
match = ['stage duration']
remedy = [{ do = "Make it smaller.", source = "https://example.com/" }]
"""
    )
    own = Scanner(for_programs(load_catalogue([directory])))
    (((rule, literal), hits),) = overspent(own, made(generate.healthy()), {}).items()
    assert rule == "too-wide"
    assert "stage duration".startswith(literal)
    assert hits > 500
