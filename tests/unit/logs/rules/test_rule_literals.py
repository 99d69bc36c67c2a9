from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tpuwatch.logs import load_catalogue
from tpuwatch.logs.rules import rule_literals as module
from tpuwatch.logs.rules.literals import HEALTHY, Anchor, cut
from tpuwatch.logs.rules.rule_literals import TABLE, PatternError, render_table, rule_literals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def without_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The table is this file, which is not there."""
    table = tmp_path / "table.json"
    monkeypatch.setattr(module, "TABLE", table)
    module._table.cache_clear()
    yield table
    module._table.cache_clear()


def test_the_table_in_the_repository_is_that_of_the_rules() -> None:
    assert TABLE.read_text() == render_table(load_catalogue().rules), "run: make literals"


@pytest.mark.slow
def test_the_table_is_printed() -> None:
    command = [sys.executable, "-m", "tpuwatch.logs.rules"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == TABLE.read_text()


def test_of_built_in_rules_none_are_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    def derived(pattern: str) -> tuple[Anchor, ...]:
        raise AssertionError(pattern)

    monkeypatch.setattr(module, "anchors", derived)
    assert load_catalogue().refused == ()


@pytest.mark.parametrize("damaged", [None, "<<<<<<< one"])
def test_without_the_table_they_are_the_same(without_table: Path, damaged: str | None) -> None:
    if damaged is not None:
        without_table.write_text(damaged)
    derived = {rule.id: rule.anchors for rule in load_catalogue().rules}
    without_table.write_bytes(TABLE.read_bytes())
    module._table.cache_clear()
    assert {rule.id: rule.anchors for rule in load_catalogue().rules} == derived


def test_a_rule_that_was_changed_has_its_own() -> None:
    rule = next(rule for rule in load_catalogue().rules if rule.cause)
    changed = ("the watchdog(?i: barked)", "a dog")
    assert rule_literals(rule.id, changed, (), whole=False) == (
        Anchor(b"a dog", False),
        Anchor(b"the watchdog barked", True),
    )


def test_a_long_literal_is_halved_unless_it_is_wanted_whole() -> None:
    text = "the runtime did not answer within the time"
    halves = [anchor.literal.decode() for anchor in rule_literals("mine", (text,), (), whole=False)]
    assert [text.startswith(half) for half in halves] == [True, False]
    assert text.removeprefix("the runtime did not ").startswith(halves[1])
    (whole,) = rule_literals("mine", (text,), (), whole=True)
    assert text.startswith(whole.literal.decode())
    assert len(whole.literal) > len(halves[0])


def test_a_literal_is_cut_where_it_ends_as_healthy_logs_do() -> None:
    assert b"Output size 0B; shares 0B with arguments." in HEALTHY.read_bytes()
    assert cut(Anchor(b"no room for the arguments", False)) == Anchor(b"no room for the ar", False)
    assert cut(Anchor(b"the watchdog barks", False)) == Anchor(b"the watchdog barks", False)
    assert cut(Anchor(b"module:", False)) == Anchor(b"module:", False)  # too short


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("(", "its pattern '(' is not valid: "), (".*", "its pattern '.*' can match without any fixed text of 4 bytes; ")],
)
def test_a_pattern_that_cannot_be_looked_for(pattern: str, message: str) -> None:
    with pytest.raises(PatternError, match=r"^its pattern") as raised:
        rule_literals("mine", (pattern,), (), whole=False)
    assert str(raised.value).startswith(message)
