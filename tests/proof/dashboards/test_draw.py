"""What the pictures of the dashboards say of values and of joined answers, and where there is no answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.proof.dashboards.draw import (
    NO_DATA,
    WIDTH,
    Answer,
    Answers,
    draw,
    figure_text,
    name_of,
    paint,
    shortened,
    table_rows,
)
from tests.proof.monitoring.dashboards import DASHBOARDS

FLEET: dict[str, Any] = json.loads((DASHBOARDS / "fleet.json").read_text(encoding="utf-8"))
NODES = next(panel["targets"][0]["expr"] for panel in FLEET["panels"] if panel["title"] == "Nodes")


def nothing(_: str) -> Answer:
    return []


def texts(answers: Answers) -> list[str]:
    """All that is written in the first section of the fleet's dashboard."""
    return [text.get_text() for axes in paint(FLEET, 1, answers).axes for text in axes.texts]


def test_a_panel_without_an_answer_says_so() -> None:
    stats = sum(panel["type"] == "stat" for panel in FLEET["panels"])
    assert texts(Answers(nothing, nothing, 0.0, 60.0)).count(NO_DATA) == stats


def test_a_figure_is_the_last_one_answered() -> None:
    def over(expr: str) -> Answer:
        return [{"metric": {}, "values": [[10.0, "11"], [20.0, "12"]]}] if expr == NODES else []

    written = texts(Answers(over, nothing, 0.0, 60.0))
    assert "12" in written
    assert "11" not in written


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.985, "percentunit", "98.5%"),
        (448 * 2.0**30, "bytes", "448 GiB"),
        (12.0, "bytes", "12 B"),
        (0.25, "s", "250 ms"),
        (0.0, "s", "0 s"),
        (90.0, "s", "1.5 min"),
        (-90.0, "s", "-1.5 min"),
        (2.0, "reqps", "2/s"),
        (4096.0, "short", "4096"),
        (float("nan"), "s", "-"),
    ],
)
def test_units(value: float, unit: str, shown: str) -> None:
    assert figure_text(value, unit) == shown


def test_a_legend_is_filled_with_labels() -> None:
    assert name_of({"chip": "2"}, "chip {{chip}}") == "chip 2"
    assert name_of({"__name__": "up", "node": "a"}, "__auto") == "node=a"


def test_what_is_too_long_is_cut() -> None:
    assert shortened("Nodes", 100.0) == "Nodes"
    assert shortened("Cloud says READY, node is dead", 100.0) == "Cloud says REA\u2026"


def test_answers_are_joined_by_the_labels_that_they_share() -> None:
    verdicts = [
        {"metric": {"node": "a", "verdict": "gone"}, "value": [0, "1"]},
        {"metric": {"node": "b", "verdict": "idle"}, "value": [0, "1"]},
    ]
    ages = [{"metric": {"node": "b"}, "value": [0, "7"]}]
    assert table_rows([verdicts, ages]) == [
        {"node": "a", "verdict": "gone", "Value #A": 1.0},
        {"node": "b", "verdict": "idle", "Value #A": 1.0, "Value #B": 7.0},
    ]
    assert table_rows([[], []]) == []


def test_the_picture_is_as_wide_as_it_should_be(tmp_path: Path) -> None:
    draw(FLEET, 1, Answers(nothing, nothing, 0.0, 60.0), tmp_path / "fleet.png")
    with Image.open(tmp_path / "fleet.png") as picture:
        assert picture.width == WIDTH
