"""Nothing that a user of the machine can forge ends anything with any word of the cloud, nor do two such things."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.health.forgeries import FORGERIES, PAIRED
from tests.unit.health.test_forgeries import CLOUDS, FALSE, LIMITS, SCENES, check_alone, check_by_peer, with_cloud
from tpuwatch.health.judge import judge_node
from tpuwatch.model.verdict import DESTRUCTIVE, proven


@pytest.mark.long
@pytest.mark.parametrize("word", FALSE)
def test_no_two_forgeries_end_anything(word: str) -> None:
    cloud = CLOUDS[word]
    for scene, evidence in SCENES.items():
        for one, other in itertools.combinations(PAIRED, 2):
            judgement = judge_node(PAIRED[other](PAIRED[one](with_cloud(evidence, cloud))), LIMITS)
            assert judgement.action not in DESTRUCTIVE, (scene, one, other, judgement)
            assert not proven(judgement.sources) or judgement.verdict.value in ("healthy", "idle", "compiling")


@pytest.mark.parametrize("word", CLOUDS)
def test_a_forgery_ends_nothing_whatever_the_cloud_says(word: str) -> None:
    for name in FORGERIES:
        check_alone(name, [word])


@pytest.mark.parametrize("word", FALSE)
def test_a_forgery_ends_nothing_by_way_of_a_peer(word: str) -> None:
    for name in FORGERIES:
        check_by_peer(name, [word])
