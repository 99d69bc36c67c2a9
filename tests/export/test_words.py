from __future__ import annotations

import pytest

from tests.export import samples
from tpuwatch.export import words
from tpuwatch.health.verdict import BAD, Rung, Verdict


def test_every_verdict_has_its_place_and_the_bad_ones_come_first() -> None:
    ranked = sorted(Verdict, key=words.rank)
    assert sorted(map(words.rank, Verdict)) == list(range(len(Verdict)))
    assert set(ranked[: len(BAD)]) == BAD
    assert ranked[len(BAD)] is Verdict.UNKNOWN
    assert ranked[-1] is Verdict.HEALTHY


@pytest.mark.parametrize("verdict", Verdict)
def test_a_member_and_its_value_are_told_alike(verdict: Verdict) -> None:
    for tell in (words.rank, words.tone, words.is_bad, words.verdict_words):
        assert tell(verdict) == tell(verdict.value)
    assert words.is_bad(verdict) == (verdict in BAD)
    assert "_" not in words.verdict_words(verdict)


def test_unknown_is_not_unhealthy() -> None:
    assert not words.is_bad(Verdict.UNKNOWN)
    assert words.tone(Verdict.UNKNOWN) == "warn"
    assert (words.tone("of_tomorrow"), words.verdict_words("of_tomorrow")) == ("plain", "of tomorrow")


def test_every_rung_has_words_of_its_own() -> None:
    assert len({words.help_words(rung) for rung in Rung}) == len(Rung)
    assert words.help_words(Rung.RESET_QUEUED_RESOURCE) == "reset the queued resource"
    assert words.help_words("of_tomorrow") == "of tomorrow"


def test_the_worst_first_then_the_own_one_then_by_name() -> None:
    nodes = [
        samples.node("b"),
        samples.node("c", Verdict.UNKNOWN),
        samples.node("train-1"),
        samples.node("a"),
        samples.node("d", Verdict.NODE_STUCK),
    ]
    assert [node.node for node in words.worst_first(nodes)] == ["d", "c", "train-1", "a", "b"]


def test_what_the_cloud_says() -> None:
    assert words.cloud_words("READY", "TIMEOUT") == "READY/TIMEOUT"
    assert words.cloud_words("CREATING", "") == "CREATING"
