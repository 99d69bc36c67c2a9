"""The fast pass finds a candidate wherever a rule's own patterns, tried one by one, match."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tpuwatch.logs.parse.scan import Hit, Scanner, StreamScan
from tpuwatch.logs.rules.catalogue import Catalogue, for_streams, load_catalogue


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(load_catalogue())


def scanned(scanner: Scanner, text: bytes) -> list[Hit]:
    return StreamScan(scanner).scan(text, 0, len(text))


def called(scanner: Scanner, text: bytes) -> set[str]:
    """The rules that the fast pass calls for."""
    return {rule.id for hit in scanned(scanner, text) for rule in hit.rules}


def recognised(scanner: Scanner, text: bytes) -> set[str]:
    """The rules whose patterns match, each tried on its own."""
    return {rule.id for rule in scanner.catalogue.rules if rule.search(text) is not None}


def test_a_hit_has_the_position_of_its_literal(scanner: Scanner) -> None:
    literal = scanner.literals.rules.index(next(rules for rules in scanner.literals.rules if rules))
    anchor = next(iter(scanner.literals.rules[literal][0].anchors))
    text = b"x" * 1000 + anchor.literal + b"y"
    assert (1000, literal) in [hit[:2] for hit in scanned(scanner, text)]


def test_no_rules_find_nothing() -> None:
    assert scanned(Scanner(Catalogue(())), b"anything") == []


@pytest.mark.slow
def test_the_fast_pass_misses_nothing_on_adversarial_text(scanner: Scanner) -> None:
    rng = random.Random(7)
    examples = [example for rule in scanner.catalogue.rules for example in (*rule.examples, *rule.counterexamples)]
    glue = ["", " ", "\n", "\x00", "\x1b[31m", "预映射", "A" * 50, "\r", "\t: "]
    for _ in range(400):
        pieces = []
        for _ in range(rng.randint(1, 4)):
            piece = rng.choice(examples)
            start, stop = sorted((rng.randint(0, len(piece)), rng.randint(0, len(piece))))
            pieces += [rng.choice((piece, piece[start:stop], piece.upper(), piece.lower())), rng.choice(glue)]
        text = "".join(pieces).encode()
        missed = recognised(scanner, text) - called(scanner, text)
        assert not missed, (missed, text)


DENSE = b"".join(b"step %d loss %d.5 grad_norm 1.0 barrier ok\n" % (step, step) for step in range(3000))


def test_in_dense_text_only_literals_of_matches_are_hits() -> None:
    scanner = Scanner(without_progress(few()))
    stream, text = StreamScan(scanner), DENSE + b"step 7 loss is nan\n"
    assert len(stream.scan(text, 0, len(text))) > 3000
    scanner.compile_patterns()
    for _ in range(3):  # by the literals first, then by the patterns
        hits = stream.scan(text, 0, len(text))
        assert {hit.position for hit in hits} <= set(range(len(DENSE), len(text)))
        assert "numeric-fault" in {rule.id for hit in hits for rule in hit.rules}


def test_matches_of_ignored_rules_are_no_hits_in_dense_text() -> None:
    catalogue = few()
    scanner, progress = Scanner(catalogue), catalogue.rule("mark-progress")
    scanner.compile_patterns()
    stream = StreamScan(scanner)
    assert progress in {rule for hit in stream.scan(DENSE, 0, len(DENSE)) for rule in hit.rules}
    stream = StreamScan(scanner)
    for _ in range(3):
        hits = stream.scan(DENSE, 0, len(DENSE), frozenset({progress}))
        assert progress not in {rule for hit in hits for rule in hit.rules}


def test_patterns_are_compiled_once_when_literals_have_often_led_to_nothing() -> None:
    work: list[Callable[[], None]] = []
    scanner = Scanner(load_catalogue(), background=work.append)
    for _ in range(100):
        scanner.note_fruitless()
    assert not work
    for _ in range(5000):
        scanner.note_fruitless()
    assert len(work) == 1


def test_literals_that_were_kept_are_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = load_catalogue()
    text = DENSE + b"".join(f"\n{example}\n".encode() for rule in catalogue.rules for example in rule.examples)
    first = Scanner(catalogue, kept=tmp_path).find(text, ())
    with monkeypatch.context() as patch:
        patch.setattr("tpuwatch.logs.parse.scan._Search.compile", pytest.fail)
        second = Scanner(catalogue, kept=tmp_path).find(text, ())
    assert second == first == Scanner(catalogue).literals.find(text)


def test_the_literals_of_other_rules_are_others(tmp_path: Path) -> None:
    text = DENSE + b"Barrier timed out\n"
    whole = Scanner(load_catalogue(), kept=tmp_path).find(text, ())
    kept = len(list(tmp_path.iterdir()))
    some = Scanner(few(), kept=tmp_path).find(text, ())
    assert len(list(tmp_path.iterdir())) > kept
    assert len(some) < len(whole)


def test_literals_of_facts_that_are_known_are_not_searched() -> None:
    catalogue = load_catalogue()
    scanner = Scanner(catalogue)
    text = b"Build label: libtpu_lts_1\nstep 1 loss nan\nProcess id 7\n"
    every = scanner.find(text, ())
    build, pid = catalogue.rule("mark-banner"), catalogue.rule("mark-banner-pid")
    for known in ({build}, {build, pid}, {pid}):
        left = [hit for hit in every if not known.issuperset(scanner.literals.rules[hit[1]])]
        assert scanner.find(text, known) == left != every
    assert scanner.find(text, {catalogue.rule("numeric-fault")}) == every  # no fact: it counts each time


@pytest.mark.slow
def test_patterns_that_were_kept_are_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = load_catalogue()
    first = Scanner(catalogue, background=lambda work: work(), kept=tmp_path)
    second = Scanner(catalogue, background=pytest.fail, kept=tmp_path)
    text = DENSE + b"".join(f"\n{example}\n".encode() for rule in catalogue.rules for example in rule.examples)
    found = []
    for scanner in (first, second):
        for _ in range(5000):
            scanner.note_fruitless()
        assert scanner.patterns is not None
        found.append(scanner.patterns.hits(text, frozenset()))
        monkeypatch.setattr("tpuwatch.logs.parse.scan._PatternDatabase.compile", pytest.fail)
    assert len(found[0]) > len(catalogue.rules)
    assert found[0] == found[1]


def test_where_most_literals_are_part_of_a_match_patterns_are_not_searched() -> None:
    scanner = Scanner(without_progress(few()))
    scanner.compile_patterns()
    stream, storm = StreamScan(scanner), b"step 7 loss is nan\n" * 1000
    assert stream.scan(storm, 0, len(storm))
    assert len(stream.scan(DENSE, 0, len(DENSE))) > 3000  # for a while
    for _ in range(100):
        hits = stream.scan(DENSE, 0, len(DENSE))
    assert not hits


def test_a_pattern_that_hyperscan_refuses_leaves_its_literals(tmp_path: Path) -> None:
    tmp_path.joinpath("own.toml").write_text(
        '[[rule]]\nid = "own"\ncause = "hang"\nsummary = "s"\nmatch = [\'loss (?:[a-z]{0,30}b[a-z]{0,30}c){15}\']\n',
        encoding="utf-8",
    )
    catalogue = load_catalogue([tmp_path])
    scanner = Scanner(Catalogue((catalogue.rule("own"), catalogue.rule("numeric-fault"))))
    scanner.compile_patterns()
    called = {rule.id for hit in scanned(scanner, DENSE) for rule in hit.rules}
    assert called == {"own"}


def few() -> Catalogue:
    """The rules whose literals are in the lines of a training log, and few others: to compile all takes seconds."""
    return Catalogue(tuple(rule for rule in load_catalogue().rules if rule.family in {"hardware", "marks"}))


def without_progress(catalogue: Catalogue) -> Catalogue:
    return for_streams(catalogue, ())
