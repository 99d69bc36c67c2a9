"""The benchmark of tuning, in small: the targets are met by tpuwatch and by who knows the truth, and by nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.proof.bench import tune
from tpuwatch.config import Config
from tpuwatch.tune.planner import bounds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.proof.bench.simulated_host import World
    from tests.proof.bench.tune import Choice
    from tpuwatch.model.launches import Launch
    from tpuwatch.model.tune import TuneHost

HOSTS = 120


def missed(policy: tune.Policy) -> set[str]:
    """The targets that a policy does not reach."""
    return {figure.name for figure in tune.judged(tune.Record(policy, HOSTS)) if not figure.reached}


def much(_world: World, _launches: Sequence[Launch], _host: TuneHost) -> Choice:
    """As much as there is."""
    return 64 << 30, None


def little(_world: World, _launches: Sequence[Launch], _host: TuneHost) -> Choice:
    """Nothing goes through the region, so nothing fails in it."""
    return 256 << 20, 4096


def fickle(world: World, launches: Sequence[Launch], host: TuneHost) -> Choice:
    """Right, but for now and then."""
    return tune.oracle(world, launches, host) if len(launches) % 8 else (256 << 20, None)


def test_tpuwatch_reaches_every_target() -> None:
    assert missed(tune.tuned) == set()


def test_so_does_who_knows_the_truth() -> None:
    assert missed(tune.oracle) == set()


@pytest.mark.parametrize(
    ("policy", "target"),
    [
        (tune.always_default, "tuning: the same where the default does not do"),
        (tune.double_on_failure, "tuning: launches with more memory than is allowed"),
        (much, "tuning: hosts that end worse than by default"),
        (much, "tuning: launches with more memory than is allowed"),
        (little, "tuning: hosts that fit and are fast, where both can be"),
        (little, "tuning: hosts that end worse than by default"),
        (fickle, "tuning: the same, the worst host"),
    ],
)
def test_others_miss_some(policy: tune.Policy, target: str) -> None:
    assert target in missed(policy)


def test_the_bounds_are_those_of_the_configuration() -> None:
    assert bounds_of(Config()) == tune.BOUNDS
