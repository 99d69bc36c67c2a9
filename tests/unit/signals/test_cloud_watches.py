"""Tests of which nodes are watched."""

from __future__ import annotations

from tpuwatch.model.signals import Identity, Known
from tpuwatch.signals.cloud import watches


def identity(project: str = "lab", zone: str = "us-a", node: str = "") -> Identity:
    return Identity(project=Known(project, "config"), zone=Known(zone, "config"), node=Known(node, "metadata"))


def test_the_own_node_is_watched_in_the_home_zone() -> None:
    (watch,) = watches((), identity(node="me"))
    assert (watch.project, watch.zone, watch.names, watch.patterns, watch.home) == ("lab", "us-a", {"me"}, (), True)
    assert watch.label("me") == "me"
    assert watch.placed


def test_nothing_named_is_nothing_watched() -> None:
    assert watches((), identity()) == ()


def test_one_watch_per_zone_however_many_nodes() -> None:
    home, other = watches(("a", "train-*", "us-a/b", "eu-b/*", "eu-b/c"), identity(node="me"))[::-1]
    assert home.names == {"a", "b", "me"}
    assert [home.has(name) for name in ("a", "b", "me", "train-7", "other", "xtrain-1")] == [True] * 4 + [False] * 2
    assert (other.zone, other.names, other.home) == ("eu-b", {"c"}, False)
    assert other.has("anything")
    assert other.label("c") == "eu-b/c"
    assert home.label("b") == "b"


def test_a_question_mark_stands_for_one_character() -> None:
    (watch,) = watches(("n-?",), identity())
    assert [watch.has(name) for name in ("n-1", "n-12", "n-")] == [True, False, False]


def test_without_a_zone_only_nodes_that_name_theirs_have_a_place() -> None:
    nowhere, somewhere = watches(("a", "eu-b/c"), identity(zone=""))
    assert not nowhere.placed
    assert somewhere.placed
    assert somewhere.label("c") == "eu-b/c"


def test_without_a_project_nothing_has_a_place() -> None:
    assert [watch.placed for watch in watches(("a", "eu-b/c"), identity(project=""))] == [False, False]
