"""The items of Google's guides, and the page that is made from them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import tomli

from deploy.guides.__main__ import page
from deploy.guides.table import NOT_BY_SOFTWARE, NOT_SERVED, PARTLY, STATUSES, Item, load
from tests.paths import ROOT
from tests.unit.advise.test_guides import CODE, VALUES
from tpuwatch.advise import advise, code_advice
from tpuwatch.advise.measured import PASSAGES as MEASURED
from tpuwatch.cli.main import COMMANDS
from tpuwatch.config import Config
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause

GUIDES, ITEMS = load()
RULES = {rule.id: rule for rule in load_catalogue().rules}
ALERTS = set(re.findall(r"alert: (\w+)", (ROOT / "deploy/prometheus/tpuwatch.rules.yml").read_text(encoding="utf-8")))
FINDINGS = {*VALUES, *CODE, *MEASURED}


def test_the_page_is_what_the_table_gives() -> None:
    assert (ROOT / "docs/guides.md").read_text(encoding="utf-8") == page(), "make guides"


def test_items_are_numbered_once() -> None:
    assert [name for name, count in Counter(item.id for item in ITEMS).items() if count > 1] == []
    numbers = {letter: [int(item.id[1:]) for item in ITEMS if item.guide == letter] for letter in GUIDES}
    assert {letter: sorted(of) for letter, of in numbers.items()} == {
        letter: list(range(1, len(of) + 1)) for letter, of in numbers.items()
    }


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.id)
def test_an_item_names_what_there_is_and_claims_nothing_else(item: Item) -> None:
    assert item.status in STATUSES
    assert set(item.causes) <= {cause.value for cause in Cause}
    assert set(item.rules) <= RULES.keys()
    assert {rule.cause.value for name in item.rules if (rule := RULES[name]).cause is not None} <= set(item.causes)
    assert set(item.findings) <= FINDINGS
    assert set(item.commands) <= set(COMMANDS)
    assert set(item.alerts) <= ALERTS
    config = Config().model_dump()
    for setting in item.settings:
        section, key = setting.split(".")
        assert key in config[section]
    by = item.causes + item.findings + item.commands + item.settings
    if item.status in (NOT_SERVED, NOT_BY_SOFTWARE):
        assert (by, item.tests, item.message, item.note) == ((), (), (), "")
    else:
        assert by
        assert item.tests
        assert item.note or item.status != PARTLY
    for test in item.tests:
        path, _, function = test.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert not function or re.search(rf"^def {function}\(", text, re.MULTILINE), test
    assert not (item.message and item.no_message)


@pytest.mark.parametrize("item", [item for item in ITEMS if item.advice], ids=lambda item: item.id)
def test_the_advice_has_the_words_of_the_guide(item: Item, tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    given = []
    for name in item.findings:
        if name in CODE:
            source.write_text(CODE[name][0] + "\n", encoding="utf-8")
            given += [one for one in code_advice([source], batch=16, devices=8).found if one.id == name]
        if name in VALUES:
            given += [one for one in advise(VALUES[name][0]).found if one.id == name]
    told = " ".join(f"{one.number} {one.reason} {one.change}" for one in given)
    assert [words for words in item.advice if words not in told] == []


def test_each_finding_of_advise_has_an_item() -> None:
    assert {name for item in ITEMS for name in item.findings} >= FINDINGS


def test_the_project_tests_what_the_make_target_writes() -> None:
    assert "deploy.guides > docs/guides.md" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert tomli.loads((ROOT / "deploy/guides/items.toml").read_text(encoding="utf-8"))["guides"] == GUIDES
